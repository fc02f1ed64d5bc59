"use strict";
(() => {
  const percent = (value, [low, high]) => `${(100 * (value - low) / (high - low)).toFixed(3)}%`;
  const tidy = (value, digits = 3) => {
    const size = Math.abs(value);
    let text;
    if (!isFinite(value)) text = value > 0 ? "∞" : "−∞";
    else if (size >= 10 ** digits) text = Math.round(value).toLocaleString("en");
    else if (size && size < 1e-3) text = value.toExponential(digits - 1);
    else text = String(Number(value.toPrecision(digits)));
    return text.replace("-", "−");
  };
  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // the forest of coefficients: choose, sort, rescale
  document.querySelectorAll("form.controls").forEach((form) => {
    const section = form.parentElement;
    const body = section.querySelector("table.forest tbody");
    if (!body) return;
    const control = (name) => form.querySelector(`[data-control=${name}]`);
    const rows = [...body.rows].map((row) => ({
      row, name: row.dataset.name, index: Number(row.dataset.index), mean: Number(row.dataset.mean),
      lower: Number(row.dataset.lower), upper: Number(row.dataset.upper), signed: "signed" in row.dataset, apart: "apart" in row.dataset,
      inner: row.dataset.inner ? row.dataset.inner.split(" ").map(Number) : null,
    }));
    const orders = {
      model: (a, b) => a.index - b.index,
      size: (a, b) => Math.abs(b.mean) - Math.abs(a.mean),
      certain: (a, b) => Math.abs(b.mean) / (b.upper - b.lower) - Math.abs(a.mean) / (a.upper - a.lower),
      name: (a, b) => a.name.localeCompare(b.name),
    };
    const linearTicks = ([low, high]) => {
      const raw = (high - low) / 5, size = 10 ** Math.floor(Math.log10(raw));
      const step = size * [1, 2, 5, 10].reduce((best, each) => Math.abs(each * size - raw) < Math.abs(best * size - raw) ? each : best);
      const found = [];
      for (let i = Math.ceil(low / step); i <= Math.floor(high / step); i++) found.push(i * step);
      return found;
    };
    const ratioTicks = ([low, high]) => {
      const found = [], wide = high - low > Math.log(60);
      for (let power = -12; power <= 12; power++)
        for (const lead of wide ? [1] : [1, 2, 5]) {
          const at = Math.log(lead) + power * Math.LN10;
          if (at >= low && at <= high) found.push(at);
        }
      return found.length > 1 ? found : linearTicks([low, high]);
    };
    const draw = () => {
      const wanted = control("filter").value.trim().toLowerCase();
      const ratio = control("ratio") ? control("ratio").checked : false;
      const shown = rows.filter((each) => each.name.toLowerCase().includes(wanted) && (!ratio || each.signed));
      rows.forEach((each) => { each.row.hidden = !shown.includes(each); });
      [...rows].sort(orders[control("order").value]).forEach((each) => body.append(each.row));
      control("shown").textContent = `${shown.length} of ${rows.length} shown`;
      const drawn = shown.filter((each) => !each.apart);
      const low = Math.min(0, ...drawn.map((each) => each.lower)), high = Math.max(0, ...drawn.map((each) => each.upper));
      const width = (high - low) || 1, ends = [low - 0.04 * width, high + 0.04 * width];
      const say = (value) => tidy(ratio ? Math.exp(value) : value);
      shown.forEach(({ row, mean, lower, upper, inner }) => {
        const move = (selector, places) => {
          const shape = row.querySelector(`svg.interval ${selector}`);
          if (shape) for (const [key, value] of Object.entries(places)) shape.setAttribute(key, percent(value, ends));
        };
        move(".zero", { x1: 0, x2: 0 });
        move(".whole", { x1: lower, x2: upper });
        if (inner) move(".inner", { x1: inner[0], x2: inner[1] });
        move(".dot", { cx: mean });
        row.querySelector("[data-cell=mean]").textContent = say(mean);
        row.querySelector("[data-cell=interval]").textContent = `${say(lower)} to ${say(upper)}`;
      });
      section.querySelector("[data-head=estimate]").textContent = ratio ? form.dataset.ratio : "Estimate";
      const axis = section.querySelector("svg.axis");
      axis.replaceChildren(...(ratio ? ratioTicks : linearTicks)(ends).map((at) =>
        svg("text", { x: percent(at, ends), y: "70%", "text-anchor": "middle" }, say(at))));
    };
    form.addEventListener("input", draw);
    form.addEventListener("submit", (event) => event.preventDefault());
    const detail = section.querySelector(".detail");
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (!row) return;
      rows.forEach((each) => each.row.classList.toggle("chosen", each.row === row));
      body.querySelectorAll("button.name").forEach((each) => each.setAttribute("aria-pressed", String(each.closest("tr") === row)));
      const name = document.createElement("strong");
      name.textContent = row.dataset.name;
      detail.replaceChildren(name, ` ${row.dataset.about}`);
    });
  });

  // curves: read values off by pointer or by arrow keys
  document.querySelectorAll("svg.read").forEach((picture) => {
    const places = picture.dataset.places.split(" ").map(Number), read = picture.dataset.read.split("\n");
    const line = picture.querySelector(".hover"), out = picture.parentElement.querySelector(".readout");
    let at = -1;
    const show = (index) => {
      at = Math.max(0, Math.min(places.length - 1, index));
      line.setAttribute("x1", places[at]);
      line.setAttribute("x2", places[at]);
      picture.classList.add("reading");
      out.textContent = read[at];
    };
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * picture.viewBox.baseVal.width;
      show(places.reduce((best, each, index) => Math.abs(each - x) < Math.abs(places[best] - x) ? index : best, 0));
    });
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { event.preventDefault(); show(at + step); }
    });
  });
  document.documentElement.classList.add("ready");
})();
