// News from the server, for as long as the page is open: a browser gives up where it was answered with an error, we do not.
export function listen(tell) {
  const news = new EventSource("/events");
  news.onmessage = tell;
  news.onerror = () => { if (news.readyState === EventSource.CLOSED) setTimeout(() => listen(tell), 5000); };
}
