"""The side of whoever holds the rows: exact counting, and noise on the profile. Secret until the noise is on."""
