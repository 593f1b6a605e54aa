// News from the server, for as long as the page is open: a browser gives up where it was answered with an error, we do not.
// All addresses are relative to where these scripts are, so that a proxy may put the collector under a prefix.
export const ROOT = new URL("../", import.meta.url).pathname;

// To the door: the token was revoked, or its time is over.
export const leave = () => location.assign(`${ROOT}login`);

export function listen(tell) {
  const news = new EventSource(`${ROOT}events`);
  news.onmessage = tell;
  news.onerror = async () => {
    if (news.readyState !== EventSource.CLOSED) return;
    const answer = await fetch(`${ROOT}tasks`, { method: "HEAD" }).catch(() => null);
    if (answer?.status === 401) leave(); else setTimeout(() => listen(tell), 5000);
  };
}
