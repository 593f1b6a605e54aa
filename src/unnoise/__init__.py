"""unnoise"""
