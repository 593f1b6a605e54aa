// Noise, clamping and recovery in the reader's hands: plain SVG, no network. The estimator is unnoise's `isotonic`
// (docs/estimators.md): fold at zero, invert by three taps, make the cumulative curve fall.
(() => {
  const SVG = "http://www.w3.org/2000/svg", TOP = 24;
  const shape = (name, attributes) => { const made = document.createElementNS(SVG, name); for (const [k, v] of Object.entries(attributes)) made.setAttribute(k, v); return made; };

  // A small generator with a seed, so that dragging changes what is dragged and nothing else.
  function generator(seed) { let s = seed >>> 0; return () => { s = (s + 0x6d2b79f5) >>> 0; let t = Math.imul(s ^ (s >>> 15), 1 | s); t ^= t + Math.imul(t ^ (t >>> 7), 61 | t); return ((t ^ (t >>> 14)) >>> 0) / 4294967296; }; }

  const truth = Array.from({ length: TOP + 1 }, (_, t) => (t === 0 ? 0.55 : 0.45 * 0.25 * 0.75 ** (t - 1)));

  function draw(cells, epsilon, random) {
    const a = Math.exp(-epsilon), geometric = () => Math.floor(Math.log(1 - random()) / Math.log(a));
    const noisy = new Map();
    for (let i = 0; i < cells; i++) {
      let u = random(), t = 0;
      while (t < TOP && u > truth[t]) u -= truth[t++];
      const v = t + geometric() - geometric();
      noisy.set(v, (noisy.get(v) ?? 0) + 1);
    }
    return noisy;
  }

  function recover(noisy, cells, epsilon) {
    const a = Math.exp(-epsilon), c = a / (1 - a) ** 2, top = Math.max(TOP, ...noisy.keys()) + 1;
    const y = new Array(top + 2).fill(0);
    for (const [v, n] of noisy) y[Math.max(v, 0)] += n / cells;
    // at_least(t), unbiased: Σ_v y[v]·w(v) for g = 1[h ≥ t]
    const curve = [1];
    for (let t = 1; t <= top; t++) {
      let sum = 0;
      for (let v = t + 1; v < y.length; v++) sum += y[v];
      const g = (h) => (h >= t ? 1 : 0);
      const w = (v) => (v === 0 ? (g(0) - a * g(1)) / (1 - a) : g(v) - c * (g(v - 1) - 2 * g(v) + g(v + 1)));
      sum += y[t] * w(t) + y[t - 1] * w(t - 1);
      curve.push(sum);
    }
    // pool adjacent violators: the nearest curve that falls
    const blocks = [];
    for (const value of curve.map((x) => Math.min(1, Math.max(0, x)))) {
      blocks.push([value, 1]);
      while (blocks.length > 1 && blocks.at(-2)[0] < blocks.at(-1)[0]) { const [v, n] = blocks.pop(), [u, m] = blocks.pop(); blocks.push([(v * n + u * m) / (n + m), n + m]); }
    }
    const falling = blocks.flatMap(([v, n]) => new Array(n).fill(v));
    return falling.map((v, t) => v - (falling[t + 1] ?? 0));
  }

  function start(root) {
    root.innerHTML = '<div class="controls"><label>ε <output></output><input type="range" min="-1.6" max="1.1" step="0.05" value="-0.3" aria-label="epsilon"></label><label>cells <output></output><input type="range" min="2" max="5" step="0.1" value="4" aria-label="number of cells"></label></div>';
    const picture = shape("svg", { viewBox: "0 0 720 300", role: "img", "aria-label": "noisy counts, clamped estimate, recovered profile and truth" });
    const words = document.createElement("p"); words.className = "words"; words.setAttribute("role", "status");
    root.append(picture, words);
    const [epsilonBar, cellsBar] = root.querySelectorAll("input"), [epsilonText, cellsText] = root.querySelectorAll("output");
    let wide = 720;  // as the page allows: letters keep their size on a phone
    const low = -8, step = () => (wide - 50) / (TOP - low), x = (v) => 30 + (v - low) * step(), y = (share) => 270 - 250 * Math.min(1, share / 0.62);
    const line = (values, name) => shape("polyline", { class: name, points: values.slice(0, TOP + 1).map((v, t) => `${x(t)},${y(v)}`).join(" ") });
    function show() {
      wide = Math.max(300, Math.min(720, picture.clientWidth || 720));
      picture.setAttribute("viewBox", `0 0 ${wide} 300`);
      const epsilon = 10 ** Number(epsilonBar.value), cells = Math.round(10 ** Number(cellsBar.value));
      epsilonText.textContent = epsilon.toFixed(2); cellsText.textContent = cells.toLocaleString("en");
      const noisy = draw(cells, epsilon, generator(7)), found = recover(noisy, cells, epsilon);
      const clamped = new Array(TOP + 1).fill(0);
      for (const [v, n] of noisy) if (v <= TOP) clamped[Math.max(v, 0)] += n / cells;
      picture.replaceChildren();
      for (const [v, n] of noisy) if (v >= low && v <= TOP) picture.append(shape("rect", { class: "noisy", x: x(v) - 0.43 * step(), width: 0.86 * step(), y: y(n / cells), height: 270 - y(n / cells) }));
      picture.append(line(clamped, "clamped"), line(found, "recovered"));
      truth.forEach((v, t) => picture.append(shape("circle", { class: "truth", cx: x(t), cy: y(v), r: 3 })));
      for (let t = low; t <= TOP; t += 4) { const label = shape("text", { x: x(t), y: 288, "text-anchor": "middle" }); label.textContent = t; picture.append(label); }
      const error = (f) => truth.reduce((sum, v, t) => sum + Math.abs(v - (f[t] ?? 0)), 0);
      root.dataset.clamped = error(clamped); root.dataset.recovered = error(found);
      words.textContent = `ℓ1 error: clamped ${error(clamped).toFixed(3)}, recovered ${error(found).toFixed(3)}. Items that never occur: truth 55 %, clamped ${(100 * clamped[0]).toFixed(1)} %, recovered ${(100 * found[0]).toFixed(1)} %.`;
    }
    epsilonBar.addEventListener("input", show); cellsBar.addEventListener("input", show); addEventListener("resize", show);
    show();
  }
  const find = () => document.querySelectorAll("[data-unnoise-figure]").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", find); else find();
})();
