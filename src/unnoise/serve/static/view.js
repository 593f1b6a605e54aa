// The page of one task: asks the server for answers and draws them. Texts go in as text, never as markup.
import { leave, listen, ROOT } from "./news.js";

const root = document.querySelector("#task");
const { task, nouns } = root.dataset;
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

// A number no finer than its interval can tell, but of two digits; ends of intervals go outwards (answers.render.sensible).
const coarse = (number) => (number ? Math.max(0, Math.floor(Math.log10(Math.abs(number))) - 1) : 0);
function rounded(number, spread, way = Math.round) {
  if (number === null) return "?";
  const step = 10 ** (way === Math.ceil ? coarse(spread) : Math.min(coarse(spread), coarse(number)));
  const near = Math.round(number / step);
  return (step * (Math.abs(number / step - near) < 1e-6 ? near : way(number / step))).toLocaleString("en");
}
const words = (n) => (n.marked ? "too noisy to tell" : rounded(n.value, n.high === null ? 0 : n.high - n.low));
const told = (n) => (n.mark && !n.marked ? `${words(n)} (${n.mark})` : words(n));
const remark = (n) => (n.mark && !n.marked ? [element("small", { class: "remark" }, n.mark)] : []);
const sign = (n) => (n.marked ? "?" : { "": "", "mostly model": "~" }[n.mark] ?? "≈");
const range = (n) => (n.high === null ? "unknown" : `${rounded(n.low, n.high - n.low, Math.floor)} – ${rounded(n.high, n.high - n.low, Math.ceil)}`);

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// A network or server that fails for a moment is asked again, ever less often; so is one that is still at work.
async function ask(address, patient) {
  for (let wait = 500; ; ) {
    try {
      const answer = await fetch(address);
      if (answer.status === 401) leave();
      if (answer.status < 500 || !patient) {
        const body = await answer.json();
        if (answer.status !== 202) return { ok: answer.ok, body };
        wait = 500;
      }
    } catch { /* not reached, or broken off half-way */ }
    await pause(wait);
    wait = Math.min(2 * wait, 30000);
  }
}

async function get(path, parameters, patient = true) {
  const query = new URLSearchParams(parameters).toString();
  const { ok, body } = await ask(`${ROOT}tasks/${task}/${path}${query ? `?${query}` : ""}`, patient);
  if (!ok) throw new Error(body.detail);
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
    const note = element("small", {}, root.dataset.every !== "once" ? `last ${last}` : own[0].received ? `sent ${own[0].received.slice(0, 10)}` : "held by both servers");
    if (gaps.length) note.append(" · ", element("span", { class: "gap", title: gaps.join(", ") }, `${gaps.length} missing`));
    $("#sites").append(element("label", {}, box, element("span", {}, site), note));
    if (focused === site) box.focus();
  }
}

function showReach(answer) {
  const { reach } = answer;
  $("#headline").textContent = reach.marked ? "Too noisy to tell" : `${words(reach)} ${nouns}`;
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
    picture.append(shape("rect", { class: "bar", x: 0, y: 1, height: 8, width: n.marked ? 0 : x(n.value) }), shape("line", { class: "whisker", x1: x(n.low), x2: x(n.high ?? most), y1: 5, y2: 5 }));
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
    const sure = known.filter(([, n]) => !n.marked);
    picture.append(shape("polyline", { class: `line${kind}`, points: sure.map(([i, n]) => `${x(i)},${y(n.value)}`).join(" ") }));
    for (const [i, n] of sure) picture.append(shape("circle", { class: `dot${kind}`, cx: x(i), cy: y(n.value), r: 3.5 }));
  }
  const every = Math.ceil(points.length / (width / 110));
  const anchor = (i) => (points.length > 1 && i === points.length - 1 ? "end" : "middle");
  points.forEach((p, i) => { if (i % every === 0) picture.append(shape("text", { x: x(i), y: height - 8, "text-anchor": anchor(i) }, p.period)); });
  $("#time").replaceChildren(picture);
  const last = points.at(-1);
  const said = (name) => (last[name] ? told(last[name].reach) : last.missing[name]);
  $("#time-words").textContent = `${last.period}: ${said("alone")}; all up to it: ${said("so_far")}.`;
}

function showOverlap(answer) {
  const names = answer.names ?? [];
  const head = element("tr", {}, element("td"), ...names.map((name) => element("th", { scope: "col" }, name)));
  const rows = names.map((name, i) => element("tr", {}, element("th", { scope: "row" }, name), ...names.map((_, j) => {
    const n = answer.matrix[i][j];
    return element("td", { class: `${i === j ? "self" : ""}${n.marked ? " noisy" : ""}`, title: `95 %: ${range(n)}${n.mark ? `, ${n.mark}` : ""}` }, n.marked ? "?" : `${sign(n)} ${words(n)}`.trim());
  })));
  $("#overlap tbody").replaceChildren(head, ...rows);
  const marks = new Set(answer.matrix.flat().filter((n) => n.mark).map((n) => `${sign(n)} ${n.mark}`));
  $("#overlap-words").textContent = [...marks].sort().join(" · ");
}

function clearAnswer() {
  $("#headline").textContent = "No answer";
  $("#headline").classList.add("marked");
  $("#mark").hidden = true;
  $("#frequency tbody").replaceChildren();
}

// The three questions of the page: how an answer is drawn, where it stands in words, and what goes when there is none.
const QUESTIONS = {
  answer: { draw: (a) => { showReach(a); showFrequency(a); }, place: "#headline-range", clear: clearAnswer },
  "over-time": { draw: (a) => { points = a.points; showTime(); }, place: "#time-words", clear: () => { points = []; $("#time").replaceChildren(); } },
  overlap: { draw: showOverlap, place: "#overlap-words", clear: () => $("#overlap tbody").replaceChildren() },
};

// What is answered to an older question than the newest comes too late to be shown.
let newest = 0;
async function refreshAnswers() {
  newest += 1;
  const mine = newest, sites = chosen();
  for (const link of document.querySelectorAll("[data-export]")) link.href = `${ROOT}tasks/${task}/${link.dataset.export}?${new URLSearchParams(sites)}`;
  const beside = root.dataset.way === "sealed" && (sites.length || document.querySelectorAll("#sites input").length) > 1;
  const asked = ["answer", ...(root.dataset.every === "once" ? [] : ["over-time"]), ...(beside ? ["overlap"] : [])];
  $("#overlap-title").parentElement.hidden = !beside;
  for (const path of asked) $(QUESTIONS[path].place).closest("section").setAttribute("aria-busy", "true");
  for (const path of asked) {
    const { draw, place, clear } = QUESTIONS[path];
    let answer, said;
    try { answer = await get(path, sites); } catch (error) { said = error.message; }
    if (mine !== newest) return;
    if (answer) draw(answer); else { clear(); $(place).textContent = said; }
    $(place).closest("section").removeAttribute("aria-busy");
  }
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
    let said = "The collector was not reached. Ask again: the same sum is one release, however often it is asked for.";
    $("#sums-said").textContent = "Under way …";
    try {
      const answer = await fetch(`${ROOT}tasks/${task}/sums`, { method: "POST", body: JSON.stringify({ period: $("#ask-period").value, sites }) });
      const body = await answer.json();
      said = answer.ok ? "Asked for, and here." : body.detail;
    } catch { /* not reached */ }
    await refresh();
    $("#sums-said").textContent = said;
  };
  dialog.showModal();
}
$("#ask")?.addEventListener("submit", askForSum);
$("#ask-period")?.addEventListener("change", () => refresh());

// What both servers hold in a period, and what is in their sums already.
async function sentToTwo() {
  const { sums } = await get("sums");
  showSums(sums);
  const period = $("#ask-period")?.value || sums.at(-1)?.period;
  $("#sums-said").textContent = "";
  const held = period ? await get("reports", [["period", period]], false).catch((error) => { $("#sums-said").textContent = error.message; return { reports: [] }; }) : { reports: [] };
  return [...held.reports, ...sums.flatMap((one) => one.sites.map((site) => ({ site, period: one.period, received: one.asked, digest: one.digest + site })))];
}

// What is promised depends on what was sent, and is worded by the server.
async function refreshPromise() {
  const page = new DOMParser().parseFromString(await (await fetch(location.pathname)).text(), "text/html");
  for (const place of ["#guarantee", "#ledger"]) $(place).textContent = page.querySelector(place).textContent;
}

let seen;
async function refresh() {
  try {
    const rows = root.dataset.way === "two-servers" ? await sentToTwo() : (await get("reports")).reports;
    const now = rows.map((one) => one.digest).join();
    if (now === seen) return;
    if (seen !== undefined) refreshPromise().catch(() => {});  // worth no error: the next news brings it
    seen = now;
    showSites(rows);
    if (rows.some((one) => one.received)) await refreshAnswers();
    else $("#headline").textContent = rows.length ? "No sum asked for yet" : "Nothing sent yet";
  } catch (error) { clearAnswer(); $("#headline-range").textContent = error.message; }
}

$("#everyone").addEventListener("click", () => {
  document.querySelectorAll("#sites input").forEach((box) => { box.checked = false; });
  refreshAnswers();
});
window.addEventListener("resize", () => { if (points.length) showTime(); });
listen(refresh);
refresh();
