// A link may carry the token behind its #, which no browser sends to a server; it may be opened where the page is open.
function enter() {
  const token = decodeURIComponent(location.hash.slice(1));
  if (token.startsWith("un_")) {
    history.replaceState(null, "", location.pathname);
    document.querySelector("#token").value = token;
    document.querySelector("main form").requestSubmit();
  }
}

addEventListener("hashchange", enter);
enter();
