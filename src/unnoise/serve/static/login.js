// A link may carry the token behind its #, which no browser sends to a server.
const token = decodeURIComponent(location.hash.slice(1));
if (token.startsWith("un_")) {
  history.replaceState(null, "", location.pathname);
  document.querySelector("#token").value = token;
  document.querySelector("main form").requestSubmit();
}
