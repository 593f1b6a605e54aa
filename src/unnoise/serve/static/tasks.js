// Fresh reports appear without reload.
let first = true;
new EventSource("/events").onmessage = () => { if (!first) location.reload(); first = false; };
