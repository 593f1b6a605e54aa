// The page of one task: asks the server for answers and draws them. Texts go in as text, never as markup.
const root = document.querySelector("#task");
const { task, noun } = root.dataset;
const $ = (selector) => document.querySelector(selector);
const SVG = "http://www.w3.org/2000/svg";
const AT_LEAST = (k) => (k === 1 ? "at least once" : `${k} times or more`);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A number no finer than its interval can tell.
function rounded(number, spread) {
  if (number === null) return "?";
  const step = spread > 0 ? 10 ** Math.max(0, Math.floor(Math.log10(spread)) - 1) : 1;
  return (Math.round(number / step) * step).toLocaleString("en");
}
const words = (n) => (n.marked ? "too noisy to tell" : rounded(n.value, n.high - n.low));
const remark = (n) => (n.mark && !n.marked ? [element("small", { class: "remark" }, n.mark)] : []);
const range = (n) => (n.high === null ? "unknown" : `${rounded(n.low, n.high - n.low)} – ${rounded(n.high, n.high - n.low)}`);

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// A network that is gone for a moment is tried again, ever less often.
async function reach(address) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 30000)) {
    try { return await fetch(address); } catch { await pause(wait); }
  }
}

async function get(path, parameters) {
  const query = new URLSearchParams(parameters).toString();
  const address = `/tasks/${task}/${path}${query ? `?${query}` : ""}`;
  let answer = await reach(address);
  while (answer.status === 202) {  // still at work: ask again
    await pause(1000);
    answer = await reach(address);
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail);
  return body;
}

const chosen = () => [...document.querySelectorAll("#sites input:checked")].map((box) => ["site", box.value]);

function showSites(reports) {
  const marked = new Set(chosen().map(([, name]) => name));
  const periods = [...new Set(reports.map((one) => one.period))].sort();
  const bySite = Map.groupBy ? Map.groupBy(reports, (one) => one.site) : reports.reduce((all, one) => all.set(one.site, [...(all.get(one.site) ?? []), one]), new Map());
  const focused = document.activeElement?.value;
  $("#sites").querySelectorAll("label").forEach((old) => old.remove());
  for (const [site, own] of [...bySite].sort()) {
    const box = element("input", { type: "checkbox", value: site });
    box.checked = marked.has(site);
    box.addEventListener("change", refreshAnswers);
    const last = own.map((one) => one.period).sort().at(-1);
    const gaps = periods.filter((period) => !own.some((one) => one.period === period));
    const note = element("small", {}, root.dataset.every === "once" ? `sent ${own[0].received.slice(0, 10)}` : `last ${last}`);
    if (gaps.length) note.append(" · ", element("span", { class: "gap", title: gaps.join(", ") }, `${gaps.length} missing`));
    $("#sites").append(element("label", {}, box, element("span", {}, site), note));
    if (focused === site) box.focus();
  }
}

function showReach(answer) {
  const { reach } = answer;
  $("#headline").textContent = reach.marked ? "Too noisy to tell" : `${words(reach)} ${noun}s`;
  $("#headline").classList.toggle("marked", reach.marked);
  $("#headline-range").textContent = `95 %: ${range(reach)} · ${answer.sites.length} site${answer.sites.length > 1 ? "s" : ""}, ${answer.reports} ${root.dataset.way === "sealed" ? "report" : "sum"}${answer.reports > 1 ? "s" : ""}, noise of power ${answer.power}${reach.mark && !reach.marked ? ` · ${reach.mark}` : ""}`;
  const said = answer.warnings ?? [];
  $("#mark").hidden = said.length === 0;
  $("#mark").textContent = said.join(" ");
}

function showFrequency(answer) {
  const most = Math.max(1, ...answer.at_least.map((n) => Math.min(n.high ?? 0, 3 * Math.max(1, n.value ?? 1))));
  const rows = answer.at_least.map((n) => {
    const picture = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    const x = (value) => Math.max(0, Math.min(100, (100 * (value ?? 0)) / most));
    picture.append(shape("rect", { class: "bar", x: 0, y: 1, height: 8, width: x(n.value) }), shape("line", { class: "whisker", x1: x(n.low), x2: x(n.high ?? most), y1: 5, y2: 5 }));
    return element("tr", {}, element("th", { scope: "row" }, AT_LEAST(n.count)), element("td", { class: `number${n.marked ? " noisy" : ""}` }, words(n)), element("td", {}, range(n), ...remark(n)), element("td", { class: "picture" }, picture));
  });
  $("#frequency tbody").replaceChildren(...rows);
}

let points = [];
function showTime() {
  const width = Math.max(300, $("#time").clientWidth || 720), height = 240, left = 64, bottom = 28, right = 14, top = 10;
  const all = points.flatMap((p) => [p.alone, p.so_far]).filter(Boolean).map((a) => a.reach);
  if (!all.length) { $("#time").replaceChildren(); $("#time-words").textContent = "Nothing to show yet."; return; }
  const most = Math.max(1, ...all.map((n) => Math.min(n.high ?? 0, 2.5 * Math.max(1, n.value))));
  const x = (i) => left + ((width - left - right) * (points.length === 1 ? 0.5 : i / (points.length - 1)));
  const y = (v) => height - bottom - (height - bottom - top) * Math.min(1, Math.max(0, v / most));
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const share of [0, 0.5, 1]) {
    picture.append(shape("line", { class: "axis", x1: left, x2: width - right, y1: y(share * most), y2: y(share * most) }));
    picture.append(shape("text", { x: left - 8, y: y(share * most) + 4, "text-anchor": "end" }, rounded(share * most, most / 5)));
  }
  for (const name of ["so_far", "alone"]) {
    const kind = name === "so_far" ? " sofar" : "";
    const known = points.map((p, i) => [i, p[name]?.reach]).filter(([, n]) => n);
    const up = known.map(([i, n]) => `${x(i)},${y(n.high ?? most)}`), down = known.map(([i, n]) => `${x(i)},${y(n.low)}`).reverse();
    picture.append(shape("polygon", { class: `band${kind}`, points: [...up, ...down].join(" ") }));
    picture.append(shape("polyline", { class: `line${kind}`, points: known.map(([i, n]) => `${x(i)},${y(n.value)}`).join(" ") }));
    for (const [i, n] of known) picture.append(shape("circle", { class: `dot${kind}`, cx: x(i), cy: y(n.value), r: 3.5 }));
  }
  const every = Math.ceil(points.length / (width / 110));
  const anchor = (i) => (points.length > 1 && i === points.length - 1 ? "end" : "middle");
  points.forEach((p, i) => { if (i % every === 0) picture.append(shape("text", { x: x(i), y: height - 8, "text-anchor": anchor(i) }, p.period)); });
  $("#time").replaceChildren(picture);
  const last = points.at(-1);
  $("#time-words").textContent = `${last.period}: ${last.alone ? words(last.alone.reach) : "too few sites"}; all up to it: ${last.so_far ? words(last.so_far.reach) : "too few sites"}.`;
}

function showOverlap(answer) {
  const names = answer.names ?? [];
  const head = element("tr", {}, element("td"), ...names.map((name) => element("th", { scope: "col" }, name)));
  const rows = names.map((name, i) => element("tr", {}, element("th", { scope: "row" }, name), ...names.map((_, j) => {
    const n = answer.matrix[i][j];
    return element("td", { class: `${i === j ? "self" : ""}${n.marked ? " noisy" : ""}`, title: `95 %: ${range(n)}` }, n.marked ? "?" : words(n));
  })));
  $("#overlap tbody").replaceChildren(head, ...rows);
}

async function show(part, ask, place) {
  try { part(await ask()); } catch (error) { if (place) place.textContent = error.message; }
}

async function refreshAnswers() {
  const sites = chosen();
  for (const link of document.querySelectorAll("[data-export]")) link.href = `/tasks/${task}/${link.dataset.export}?${new URLSearchParams(sites)}`;
  await show((a) => { showReach(a); showFrequency(a); }, () => get("answer", sites), $("#headline"));
  if (root.dataset.every !== "once") await show((a) => { points = a.points; showTime(); }, () => get("over-time", sites), $("#time-words"));
  const several = (sites.length || document.querySelectorAll("#sites input").length) > 1;
  $("#overlap-title").parentElement.hidden = root.dataset.way !== "sealed" || !several;
  if (root.dataset.way !== "sealed" || !several) return;
  $("#overlap-words").textContent = "Under way …";
  await show((a) => { showOverlap(a); $("#overlap-words").textContent = ""; }, () => get("overlap", sites), $("#overlap-words"));
}

// With two servers: which sums there are, and asking for another, which costs.
function showSums(sums) {
  $("#sums").replaceChildren(...sums.map((one) => element("li", {}, `${one.period}: ${one.sites.join(", ")}`)));
}

function askForSum(event) {
  event.preventDefault();
  const sites = chosen().map(([, name]) => name);
  const whom = sites.length ? sites.join(", ") : "all sites";
  $("#cost-words").textContent = `The sum of ${whom} is released with fresh noise: every occurrence in it pays ε = ${root.dataset.epsilon} once more. A report may be in ${root.dataset.sums} sum${root.dataset.sums === "1" ? "" : "s"} at most.`;
  const dialog = $("#cost");
  dialog.onclose = async () => {
    if (dialog.returnValue !== "yes") return;
    const answer = await fetch(`/tasks/${task}/sums`, { method: "POST", body: JSON.stringify({ period: $("#ask-period").value, sites }) });
    const body = await answer.json();
    $("#sums-said").textContent = answer.ok ? "Asked for, and here." : body.detail;
    seen = "";
    await refresh();
  };
  dialog.showModal();
}
$("#ask")?.addEventListener("submit", askForSum);

let seen = "";
async function refresh() {
  if (root.dataset.way === "two-servers") {
    const { sums } = await get("sums");
    showSums(sums);
    const period = $("#ask-period")?.value || sums.at(-1)?.period;
    const held = period ? await get("reports", [["period", period]]).catch(() => ({ reports: [] })) : { reports: [] };
    const rows = [...held.reports, ...sums.flatMap((one) => one.sites.map((site) => ({ site, period: one.period, received: one.asked, digest: one.digest + site })))];
    const now = rows.map((one) => one.digest).join();
    if (now === seen) return;
    seen = now;
    showSites(rows);
    await refreshAnswers();
    return;
  }
  const { reports } = await get("reports");
  const now = reports.map((one) => one.digest).join();
  if (now === seen) return;
  seen = now;
  showSites(reports);
  await refreshAnswers();
}

$("#everyone").addEventListener("click", () => {
  document.querySelectorAll("#sites input").forEach((box) => { box.checked = false; });
  refreshAnswers();
});
window.addEventListener("resize", () => { if (points.length) showTime(); });
new EventSource("/events").onmessage = refresh;
refresh();
