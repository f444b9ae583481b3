"use strict";
(() => {
  // Lines of the first chart: key, name, dashes, width. Dashes tell them apart without colours.
  const lines = [["delivered", "delivered", [], 2.5], ["read", "disk read", [6, 3], 1.75], ["written", "disk written", [2, 3], 1.75], ["source", "source", [8, 3, 2, 3], 1.75]];
  const shapes = { good: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1z", limit: "M8 1 15.5 15h-15z", idle: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 2.6a4.4 4.4 0 1 1 0 8.8 4.4 4.4 0 0 1 0-8.8z" };
  const kinds = { good: "The data is not the limit. ", limit: "Something is slower than the training loop. ", idle: "" };
  const main = document.getElementById("servers"), empty = document.getElementById("empty"), link = document.getElementById("link");
  const sections = [];
  let past = [], sample = 5;

  const make = (tag, attributes, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) k === "text" ? (e.textContent = v) : e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  const svg = (box, path, attributes) => {
    const s = document.createElementNS("http://www.w3.org/2000/svg", "svg"), p = document.createElementNS("http://www.w3.org/2000/svg", "path");
    s.setAttribute("viewBox", box);
    s.setAttribute("aria-hidden", "true");
    p.setAttribute("d", path);
    for (const [k, v] of Object.entries(attributes)) p.setAttribute(k, v);
    s.append(p);
    return s;
  };
  const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  // set calls change only if a part of the document differs from the last one, so that what a reader has selected or scrolled stays.
  const set = (section, key, value, change) => {
    const text = JSON.stringify(value);
    if (section.last[key] === text) return;
    section.last[key] = text;
    change(value);
  };
  const rate = v => v == null ? "–" : v >= 1e9 ? (v / 1e9).toFixed(2) + " GB/s" : v >= 1e7 ? Math.round(v / 1e6) + " MB/s" : v > 0 ? (v / 1e6).toFixed(1) + " MB/s" : "0";
  const percent = v => v == null ? "–" : v === 0 ? "0 %" : (100 * v).toFixed(v < 0.1 ? 1 : 0) + " %";
  const two = n => String(n).padStart(2, "0");
  const clock = (t, seconds) => { const d = new Date(t * 1000); return two(d.getHours()) + ":" + two(d.getMinutes()) + (seconds ? ":" + two(d.getSeconds()) : ""); };

  // gaps puts an empty point where the server took none for a while, so that no line is drawn through it.
  const gaps = data => {
    const out = data.map(() => []);
    data[0].forEach((t, i) => {
      if (i > 0 && t - data[0][i - 1] > 3 * sample) out.forEach((c, k) => c.push(k ? null : t - sample));
      out.forEach((c, k) => c.push(data[k][i]));
    });
    return out;
  };

  const plot = (host, data, series, axis, range) => {
    const soft = color("soft"), grid = color("grid"), font = "12px system-ui, sans-serif";
    return new uPlot({
      width: host.clientWidth, height: host.clientHeight, legend: { show: false }, padding: [8, 22, 0, 0],
      cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false }, sync: { key: host.key } },
      hooks: { setCursor: [u => host.pointed(u.cursor.idx)] },
      scales: { x: { time: true, range: () => [host.begin, host.end] }, y: { range } },
      axes: [
        { stroke: soft, font, grid: { show: false }, ticks: { show: false }, size: 26, space: 70, values: (u, at) => at.map(t => clock(t, host.end - host.begin < 240)) },
        { stroke: soft, font, grid: { stroke: grid, width: 1 }, ticks: { show: false }, size: 64, space: 42, values: (u, at) => at.map(axis) },
      ],
      series: [{}, ...series],
    }, data, host);
  };

  const begin = data => {
    const s = { last: {}, data, plots: [] };
    s.name = make("h2", { class: "name" });
    s.headline = make("p", { class: "headline" });
    s.live = make("p", { class: "progress" });
    s.fill = make("i");
    s.track = make("div", { class: "track", role: "progressbar", "aria-label": "part of the epoch", "aria-valuemin": 0, "aria-valuemax": 100 }, s.fill);
    s.warnings = make("ul", { class: "warnings", role: "alert" });
    s.tiles = make("dl", { class: "tiles" });
    s.rates = make("div", { class: "chart", role: "img" });
    s.waits = make("div", { class: "chart", role: "img" });
    for (const host of [s.rates, s.waits]) {
      host.key = "server " + sections.length;
      host.pointed = at => { if (s.at !== at) { s.at = at; legend(s); } };
    }
    s.rateLegend = make("ul", { class: "legend" });
    s.waitLegend = make("ul", { class: "legend" });
    s.waitTitle = make("h3");
    s.grid = make("div", { class: "grid" },
      make("section", { class: "card rates" }, make("h3", {}, "Throughput ", make("small", { text: "last hour" })), s.rateLegend, s.rates),
      make("section", { class: "card waits" }, s.waitTitle, s.waitLegend, s.waits));
    s.rest = make("div", { class: "grid" });
    s.root = make("section", { class: "server" }, s.name, s.headline, s.live, s.track, s.warnings, s.tiles, s.grid, s.rest);
    main.append(s.root);
    new ResizeObserver(() => draw(s, true)).observe(s.rates);
    return s;
  };

  const draw = (s, again) => {
    const data = gaps(s.data), n = data[0].length, now = Date.now() / 1000;
    for (const host of [s.rates, s.waits]) {
      host.end = n ? Math.max(data[0][n - 1], now - 2 * sample) : now;
      host.begin = Math.min(n ? data[0][0] : now, host.end - 60);
    }
    if (again || !s.plots.length) {
      s.plots.forEach(p => p.destroy());
      [s.rates, s.waits].forEach(h => h.replaceChildren());
      const up = (u, low, high) => [0, high > 0 ? high * 1.12 : 1e6];
      const shares = (u, low, high) => [0, high <= 0.1 ? 0.1 : high <= 0.5 ? 0.5 : 1];
      const solid = color("waited");
      s.plots = [
        plot(s.rates, data.slice(0, 5), lines.map(([key, , dash, width]) => ({ stroke: color(key), width, dash, points: { show: n < 2 } })), v => v >= 1e9 ? +(v / 1e9).toPrecision(3) + " GB/s" : +(v / 1e6).toPrecision(3) + " MB/s", up),
        plot(s.waits, [data[0], data[5]], [{ stroke: solid, width: 2, fill: solid + "26", points: { show: n < 2 } }], v => Math.round(v * 100) + " %", shares),
      ];
      if (n < 2) [s.rates, s.waits].forEach(h => h.append(make("p", { class: "none", text: "The lines begin after " + Math.round(2 * sample) + " seconds." })));
      s.drawn = n;
    } else {
      s.plots[0].setData(data.slice(0, 5));
      s.plots[1].setData([data[0], data[5]]);
    }
    s.shown = data;
    legend(s);
  };

  // legend has the values under the pointer, or the last ones.
  const legend = s => {
    const data = s.shown, n = data[0].length, at = s.at == null ? n - 1 : s.at, last = k => n ? data[k][at] : null;
    const when = s.at == null || data[0][at] == null ? "now" : clock(data[0][at], true);
    set(s, "legend", [when, ...lines.map((l, k) => rate(last(k + 1)))], ([, ...values]) => {
      s.rateLegend.replaceChildren(...lines.map(([key, name, dash], k) => make("li", {}, svg("0 0 34 12", "M1 6h32", { stroke: color(key), "stroke-width": 3.5, "stroke-dasharray": dash.map(d => d * 1.4).join(" ") || "none" }), name + " ", make("b", { text: values[k] }))), ...(when === "now" ? [] : [make("li", { text: when })]));
      s.rates.setAttribute("aria-label", "Throughput of the last hour. Now: " + lines.map(([, name], k) => name + " " + values[k]).join(", "));
    });
    set(s, "waitLegend", [percent(last(5)), when], ([value]) => {
      s.waitLegend.replaceChildren(make("li", {}, when + " ", make("b", { text: value })));
      s.waits.setAttribute("aria-label", "Share of waiting in the last hour. Now: " + value);
    });
  };

  // share is a cell with a share, drawn and written.
  const share = text => {
    const fill = make("i");
    fill.style.width = (parseFloat(text) || 0) + "%";
    return make("td", { class: "share" }, make("span", {}, make("div", { class: "track", "aria-hidden": "true" }, fill), make("b", { text })));
  };
  const cells = (tag, row, head) => row.map((text, i) => {
    const c = head[i].replace(/^[~#%]+/, ""), marks = head[i].slice(0, head[i].length - c.length), first = tag === "td" && i === 0;
    if (tag === "td" && marks.includes("%")) return share(text);
    const classes = [marks.includes("%") ? "share" : "", marks.includes("#") ? "num" : "", marks.includes("~") ? "less" : "", /directory|last error|address/.test(c) ? "long" : ""].filter(Boolean).join(" ");
    return make(first ? "th" : tag, { ...(classes && { class: classes }), ...(tag === "th" ? { scope: "col" } : first ? { scope: "row" } : {}), text: tag === "th" ? c : text || "–" });
  });
  const table = t => make("section", { class: "card" }, make("h3", { text: t.title }),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t.title }, make("table", {}, make("thead", {}, make("tr", {}, ...cells("th", t.head, t.head))), make("tbody", {}, ...t.rows.map(r => make("tr", {}, ...cells("td", r, t.head)))))));

  const facts = list => make("section", { class: "card" }, make("h3", { text: "Cache" }), make("dl", { class: "facts" }, ...list.map(f => make("div", {}, make("dt", { text: f.name }), make("dd", { text: f.value })))));

  const events = list => make("section", { class: "card" }, make("h3", { text: "Events" }),
    make("ol", { class: "events", tabindex: 0, role: "region", "aria-label": "Events, the latest one first" }, ...list.slice().reverse().map(e => {
      const d = new Date(e.time), today = d.toDateString() === new Date().toDateString();
      return make("li", {}, make("time", { datetime: e.time, title: d.toLocaleString(), text: (today ? "" : two(d.getMonth() + 1) + "-" + two(d.getDate()) + " ") + clock(d / 1000, today) }), make("span", { text: e.text }));
    })));

  const show = (s, v) => {
    set(s, "name", [v.name, v.version, v.pid], () => s.name.replaceChildren(v.name || "no dataset yet", make("small", { text: "pid " + v.pid + " · " + v.version })));
    set(s, "headline", v.error ? { kind: "limit", text: v.error } : v.headline, h => {
      s.headline.className = "headline " + h.kind;
      s.headline.replaceChildren(svg("0 0 16 16", shapes[h.kind], { fill: "currentColor", "fill-rule": "evenodd" }), make("span", { text: h.text, title: kinds[h.kind] }));
    });
    set(s, "progress", v.progress, text => { s.live.textContent = text; });
    set(s, "share", v.share, share => {
      s.track.hidden = share < 0;
      s.fill.className = share < s.share ? "back" : ""; // a new epoch begins at once
      s.share = share;
      s.fill.style.width = 100 * Math.max(share, 0) + "%";
      s.track.setAttribute("aria-valuenow", Math.round(100 * Math.max(share, 0)));
    });
    set(s, "warnings", v.warnings, list => { s.warnings.hidden = !list.length; s.warnings.replaceChildren(...list.map(text => make("li", { text }))); });
    set(s, "tiles", v.tiles, list => { s.tiles.hidden = !list.length; s.tiles.replaceChildren(...list.map(t => make("div", {}, make("dt", { text: t.name }), make("dd", { text: t.value })))); });
    set(s, "who", v.who, who => s.waitTitle.replaceChildren(who === "loop waited" ? "Time that the loop waited " : "Time that requests waited ", make("small", { text: "last hour" })));
    set(s, "rest", [v.tables, v.facts, v.events], () => {
      const at = [...s.rest.querySelectorAll(".scroll, .events")].map(e => [e.scrollLeft, e.scrollTop]), focus = [...s.rest.querySelectorAll("[tabindex]")].indexOf(document.activeElement);
      const jobs = [], disks = [];
      for (const t of v.tables || []) (["Devices", "Machines"].includes(t.title) ? disks : jobs).push(table(t));
      if (v.facts) disks.push(facts(v.facts));
      if (v.events.length) disks.push(events(v.events));
      s.rest.replaceChildren(...[jobs, disks].filter(c => c.length).map(c => make("div", { class: "stack" }, ...c)));
      [...s.rest.querySelectorAll(".scroll, .events")].forEach((e, i) => { if (at[i]) [e.scrollLeft, e.scrollTop] = at[i]; });
      if (focus >= 0) s.rest.querySelectorAll("[tabindex]")[focus]?.focus({ preventScroll: true });
    });
    const [t] = v.point[0];
    const known = s.data[0];
    if (t && (!known.length || t > known[known.length - 1])) {
      v.point.forEach((c, k) => s.data[k].push(c[0] ?? null));
      while (known[0] < t - 3600) s.data.forEach(c => c.shift());
      draw(s, s.drawn < 2 || !s.plots.length);
      s.drawn = known.length;
    }
  };

  const now = d => {
    sample = d.sample;
    while (sections.length < d.servers.length) {
      sections.push(begin((past[sections.length] || [[], [], [], [], [], []]).map(c => c.slice())));
      draw(sections[sections.length - 1], true);
    }
    d.servers.forEach((v, i) => show(sections[i], v));
    empty.hidden = d.servers.length > 0;
    empty.textContent = d.ready ? "No server yet." : "The source is being listed.";
    document.title = d.servers.length ? (d.servers[0].headline.text + " · " + d.servers[0].name + " · lcache") : "lcache";
  };

  const state = (text, kind) => { if (link.textContent !== text) { link.textContent = text; link.className = "link " + kind; } };
  const open = () => {
    const source = new EventSource("stream");
    source.addEventListener("past", e => {
      past = JSON.parse(e.data);
      sections.forEach((s, i) => { if (past[i]) { s.data = past[i].map(c => c.slice()); draw(s, true); } }); // again connected
    });
    source.addEventListener("now", e => { state("live", "live"); now(JSON.parse(e.data)); });
    source.onerror = () => {
      state("the server does not answer: trying again", "lost");
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 3000);
    };
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => sections.forEach(s => { delete s.last.legend; draw(s, true); }));
  open();
})();
