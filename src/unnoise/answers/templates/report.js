"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const plot = document.getElementById("plot"), tip = document.getElementById("tip"), say = document.getElementById("say");
  const state = { group: 0, curve: "exactly", scale: "log", band: true, at: -1 };
  const many = data.noun.many;
  const WORDS = { exactly: `${many} seen exactly t times`, atleast: `${many} seen at least k times` };
  const BRIEF = { exactly: "seen exactly t times", atleast: "seen at least k times" }; // where the items' name is long
  const svg = (name, attributes = {}, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    return node;
  };
  const full = (x) => x >= 1000 || Number.isInteger(x) ? Math.round(x).toLocaleString("en") : Number(x.toPrecision(3)).toString();
  const short = (x) => {
    for (const [size, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (x >= size) return Number((x / size).toPrecision(3)) + sign;
    return Number(x.toPrecision(3)).toString();
  };

  const logTicks = (low, high) => {
    const ticks = [];
    const decades = Math.log10(high / low);
    const every = Math.max(1, Math.ceil(decades / 7));
    for (let e = Math.ceil(Math.log10(low) - 1e-9); e <= Math.log10(high) + 1e-9; e += every) ticks.push(10 ** e);
    if (decades < 1.6) for (const m of [2, 5]) for (const t of [...ticks]) if (t * m <= high) ticks.push(t * m);
    return ticks.sort((a, b) => a - b);
  };
  const linearTicks = (high) => {
    const raw = high / 5, base = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => m * base >= raw) * base;
    return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
  };

  const scales = (series, scale, box) => {
    const last = Math.max(...series.map((s) => s.x[s.x.length - 1]), 2);
    const top = Math.max(...series.flatMap((s) => s.value.concat(s.truth || [])), 1);
    // a logarithmic picture ends below the smallest mean of a range that holds at least half an item
    const meant = series.flatMap((s) => s.value.filter((v, i) => v * (s.to[i] - s.from[i] + 1) >= 0.5));
    const floor = scale === "log" ? Math.min(0.7, ...meant) * 0.7 : 0;
    const x = (v) => box.left + (Math.log(v) / Math.log(last)) * box.width;
    const high = scale === "log" ? top * 2 : top * 1.06;
    const y = scale === "log"
      ? (v) => box.top + box.height * (1 - Math.log(Math.min(Math.max(v, floor), high) / floor) / Math.log(high / floor))
      : (v) => box.top + box.height * (1 - Math.min(Math.max(v, 0), high) / high);
    return { x, y, last, high, floor };
  };
  const path = (points) => "M" + points.map(([a, b]) => a.toFixed(1) + " " + b.toFixed(1)).join("L");
  // a curve breaks where it falls below the lower edge, instead of running along it
  const line = (x, values, axes) => {
    let text = "", open = false;
    values.forEach((v, i) => {
      const shown = v >= axes.floor;
      if (shown) text += (open ? "L" : "M") + x[i].toFixed(1) + " " + axes.y(v).toFixed(1);
      open = shown;
    });
    return text || "M0 0";
  };

  const draw = (host, curves, options) => {
    const { width, height, box, state: st, detail } = options;
    const axes = scales(options.shared || curves, st.scale, box);
    const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    const bottom = box.top + box.height;
    if (detail) {
      const yTicks = st.scale === "log" ? logTicks(axes.floor, axes.high) : linearTicks(axes.high);
      for (const t of yTicks) {
        node.append(svg("line", { class: "grid", x1: box.left, x2: box.left + box.width, y1: axes.y(t), y2: axes.y(t) }));
        node.append(svg("text", { x: box.left - 9, y: axes.y(t) + 4, "text-anchor": "end" }, short(t)));
      }
      for (const t of logTicks(1, axes.last)) {
        node.append(svg("line", { class: "grid", x1: axes.x(t), x2: axes.x(t), y1: box.top, y2: bottom }));
        node.append(svg("text", { x: axes.x(t), y: bottom + 20, "text-anchor": "middle" }, short(t)));
      }
      node.append(svg("text", { x: box.left + box.width, y: bottom + 38, "text-anchor": "end" },
        st.curve === "exactly" ? "t, number of occurrences →" : "k, number of occurrences →"));
      node.append(svg("text", { class: "what", x: box.left - 9, y: box.top - 14, "text-anchor": "start" }, "↑ " + WORDS[st.curve]));
    }
    node.append(svg("line", { class: "axis", x1: box.left, x2: box.left + box.width, y1: bottom, y2: bottom }));
    for (const s of curves) {
      const at = s.x.map((v) => axes.x(v));
      if (st.band) {
        const upper = at.map((v, i) => [v, axes.y(s.high[i])]);
        const lower = at.map((v, i) => [v, axes.y(s.low[i])]).reverse();
        node.append(svg("path", { class: "area", d: path(upper.concat(lower)) + "Z" }));
      }
      node.append(svg("path", { class: "curve", d: line(at, s.value, axes) }));
      if (detail) at.forEach((v, i) => {
        if (s.value[i] >= axes.floor)
          node.append(svg("circle", { class: "dot", cx: v, cy: axes.y(s.value[i]), r: s.x.length > 60 ? 2.4 : 3.6 }));
      });
      if (s.truth) node.append(svg("path", { class: "truth", d: line(at, s.truth, axes) }));
      if (s.truth && detail) {
        const right = box.left + box.width;
        node.append(svg("path", { class: "curve", d: `M${right - 150} ${box.top - 18}h22` }));
        node.append(svg("text", { class: "legend", x: right - 122, y: box.top - 14 }, "private"));
        node.append(svg("path", { class: "truth", d: `M${right - 62} ${box.top - 18}h22` }));
        node.append(svg("text", { class: "legend", x: right - 34, y: box.top - 14 }, "truth"));
      }
    }
    host.replaceChildren(node);
    const what = node.querySelector(".what"), end = box.left + box.width - (curves[0].truth ? 160 : 0);
    const tight = () => what && Number(what.getAttribute("x")) + what.getComputedTextLength() + 8 > end;
    if (tight()) what.textContent = "↑ " + BRIEF[st.curve];
    if (tight()) what.setAttribute("x", 2); // a phone: from the very edge
    return { node, axes, bottom };
  };

  let current = null;
  const series = () => data.profiles[state.group][state.curve];
  const sentence = (s, i) => {
    const width = state.curve === "exactly" ? s.to[i] - s.from[i] + 1 : 1;
    const whole = (x) => Math.round(x).toLocaleString("en");
    const range = `${whole(Math.floor(s.low[i] * width + 1e-6))}\u2060–\u2060${whole(Math.ceil(s.high[i] * width - 1e-6))}`;
    const items = `${whole(s.value[i] * width)} ${many}`;
    const times = (n) => (n === 1 ? "once" : n === 2 ? "twice" : `${full(n)} times`);
    if (state.curve === "atleast") return [items, `seen at least ${times(s.from[i])} (${range})`];
    if (s.to[i] === s.cap) return [items, `seen ${times(s.from[i])} or more (${range})`];
    if (s.from[i] === s.to[i]) return [items, `seen exactly ${times(s.from[i])} (${range})`];
    return [items, `seen ${full(s.from[i])} to ${full(s.to[i])} times (${range})`];
  };

  const render = () => {
    const width = Math.max(plot.clientWidth, 280), narrow = width < 560;
    const height = Math.round(Math.min(Math.max(width * 0.52, 320), 480));
    const box = { left: narrow ? 46 : 56, top: 30, width: 0, height: height - 76 };
    box.width = width - box.left - 14;
    current = draw(plot, [series()], { width, height, box, state, detail: true });
    const s = series(), g = svg("g");
    current.marker = g;
    current.node.append(g);
    current.node.setAttribute("aria-hidden", "false");
    current.node.setAttribute("role", "img");
    current.node.setAttribute("tabindex", "0");
    current.node.setAttribute("aria-label", `Curve of ${WORDS[state.curve]}, from ${full(s.value[0])} at 1 on. `
      + "Arrow keys read out single values; the table below holds all of them.");
    current.node.addEventListener("pointermove", (e) => point(nearest(e)));
    current.node.addEventListener("pointerdown", (e) => point(nearest(e)));
    current.node.addEventListener("pointerleave", () => point(-1));
    current.node.addEventListener("blur", () => point(-1));
    current.node.addEventListener("keydown", keys);
    point(-1);
  };
  const nearest = (event) => {
    const area = current.node.getBoundingClientRect();
    const at = (event.clientX - area.left) * (current.node.viewBox.baseVal.width / area.width);
    let best = 0;
    series().x.forEach((v, i, all) => {
      if (Math.abs(current.axes.x(v) - at) < Math.abs(current.axes.x(all[best]) - at)) best = i;
    });
    return best;
  };
  const keys = (event) => {
    const last = series().x.length - 1;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) point(Math.min(Math.max(state.at + step, 0), last));
    else if (event.key === "Home") point(0);
    else if (event.key === "End") point(last);
    else if (event.key === "Escape") point(-1);
    else return;
    event.preventDefault();
  };
  const point = (i) => {
    state.at = i;
    current.marker.replaceChildren();
    if (i < 0) { tip.hidden = true; return; }
    const s = series(), x = current.axes.x(s.x[i]), y = current.axes.y(s.value[i]);
    current.marker.append(svg("line", { class: "cursor", x1: x, x2: x, y1: 30, y2: current.bottom }));
    current.marker.append(svg("circle", { class: "focus", cx: x, cy: y, r: 5.5 }));
    const [strong, rest] = sentence(s, i);
    const bold = document.createElement("b");
    bold.textContent = strong;
    tip.replaceChildren(bold, rest);
    const wide = state.curve === "exactly" ? s.to[i] - s.from[i] + 1 : 1;
    if (s.truth) tip.append(document.createElement("br"), `truth: ${full(Math.round(s.truth[i] * wide))}`);
    tip.hidden = false;
    const area = current.node.getBoundingClientRect(), scale = area.width / current.node.viewBox.baseVal.width;
    const left = area.left + x * scale + window.scrollX, top = area.top + y * scale + window.scrollY;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(8, Math.min(left + 14, room)) + "px";
    tip.style.top = Math.max(window.scrollY + 8, top - tip.offsetHeight - 14) + "px";
    say.textContent = `${strong} ${rest}`;
  };

  const press = (buttons, chosen) => buttons.forEach((b) => b.setAttribute("aria-pressed", String(b === chosen)));
  for (const kind of ["curve", "scale"]) {
    const buttons = [...document.querySelectorAll(`[data-${kind}]`)];
    buttons.forEach((b) => b.addEventListener("click", () => {
      state[kind] = b.dataset[kind];
      press(buttons, b);
      render();
      multiples();
    }));
  }
  const band = document.getElementById("band");
  band.addEventListener("click", () => {
    state.band = !state.band;
    band.setAttribute("aria-pressed", String(state.band));
    render();
    multiples();
  });
  const smalls = [...document.querySelectorAll(".small button")];
  const multiples = () => smalls.forEach((b, i) => {
    const box = { left: 2, top: 6, width: 176, height: 78 };
    const shared = data.profiles.map((p) => p[state.curve]);
    draw(b.querySelector("i"), [shared[i]], { width: 180, height: 88, box, state, shared, detail: false });
  });
  const headline = document.getElementById("headline"), lede = document.getElementById("lede");
  const named = (name, className, text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    node.textContent = text;
    return node;
  };
  const tell = (said) => {
    headline.replaceChildren(said.before, named("strong", "", said.value));
    if (said.between) headline.append(" ", named("span", "between", said.between));
    headline.append(said.after);
    if (said.mark) headline.append(" ", named("span", "tag", said.mark));
    lede.textContent = said.lede;
  };
  smalls.forEach((b, i) => b.addEventListener("click", () => {
    state.group = i;
    press(smalls, b);
    tell(data.profiles[i].said);
    render();
  }));

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  let width = 0;
  new ResizeObserver(() => { if (plot.clientWidth !== width) { width = plot.clientWidth; render(); } }).observe(plot);
  window.addEventListener("beforeprint", () => point(-1));
  render();
  multiples();
})();
