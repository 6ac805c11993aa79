/* Two measures of every record on a canvas; a click or a loop drawn around points selects records. */
const PRINTED = { ink: "#000000", soft: "#444444", grid: "#dddddd", members: "#0072b2", nonmembers: "#d55e00", raised: "#ffffff" };
const REACH = 14;
const DRAG = 5;

/* Places in [0, 1]: logarithmic where a positive measure spans more than two decades. NaN is not placed, zeros and ∞ stand on the edge. */
function mapScale(values) {
  let [low, high, lowest] = [Infinity, -Infinity, Infinity];
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
    if (value > 0 && value < lowest) lowest = value;
  }
  if (low > high) [low, high, lowest] = [0, 1, 1];
  const log = low >= 0 && high > 100 * lowest;
  const floor = log ? Math.max(Math.log10(lowest), Math.log10(high) - 12) : low;
  const ceiling = log ? Math.log10(high) : high;
  const margin = 0.02 * (ceiling - floor) || 0.5;
  const [from, to] = [floor - margin, ceiling + margin];
  const place = (value) => {
    if (Number.isNaN(value)) return NaN;
    const position = log ? (value > 0 ? Math.log10(value) : -Infinity) : value;
    return Math.min(1, Math.max(0, (position - from) / (to - from)));
  };
  return { log, from, to, place };
}

function mapTicks(scale, most) {
  if (scale.log) {
    const every = Math.max(1, Math.ceil((scale.to - scale.from) / most));
    const ticks = [];
    for (let k = Math.ceil(scale.from); k <= scale.to; k++) if (k % every === 0) ticks.push([10 ** k, k >= -3 && k <= 3 ? String(10 ** k) : powerOfTen(k)]);
    if (ticks.length > 1) return ticks;
    return [scale.from, (scale.from + scale.to) / 2, scale.to].map((e) => [10 ** e, figureText(10 ** e)]);
  }
  const rough = (scale.to - scale.from) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * unit).find((s) => s >= rough) || unit * 10;
  const ticks = [];
  for (let k = Math.ceil(scale.from / step); k * step <= scale.to; k++) ticks.push([k * step, figureText(Number((k * step).toPrecision(10)))]);
  return ticks;
}

function insidePolygon(x, y, corners) {
  let inside = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [xi, yi] = corners[i];
    const [xj, yj] = corners[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}

function recordsMap(table, state, actions) {
  const canvas = element("canvas", { id: "map", tabIndex: 0, role: "img" });
  const pen = canvas.getContext("2d");
  const frame = { left: 64, right: 14, top: 22, bottom: 46, width: 0, height: 0 };
  let axes = null;
  let loop = null;
  let palette = null;

  function setAxes() {
    const measured = (name) => {
      const values = table.numbers.get(name);
      const scale = mapScale(values);
      const places = new Float32Array(table.n);
      for (let i = 0; i < table.n; i++) places[i] = scale.place(values[i]);
      return { name, scale, places };
    };
    axes = { x: measured(state.x), y: measured(state.y) };
    const words = `Map of ${whole.format(table.n)} records: ${state.x} to the right, ${state.y} upwards.`;
    canvas.setAttribute("aria-label", `${words} Left and right keys walk through the table's order, Enter selects, Escape clears. The table below holds the same records.`);
  }
  const across = (i) => frame.left + axes.x.places[i] * frame.width;
  const upward = (i) => frame.top + (1 - axes.y.places[i]) * frame.height;

  function fit() {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth || canvas.parentElement.clientWidth || 600;
    const height = Math.round(Math.min(460, Math.max(280, width * 0.55)));
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    frame.width = width - frame.left - frame.right;
    frame.height = height - frame.top - frame.bottom;
  }

  function drawAxes() {
    const [bottom, right] = [frame.top + frame.height, frame.left + frame.width];
    pen.font = "12px system-ui, sans-serif";
    pen.strokeStyle = palette.grid;
    pen.lineWidth = 1;
    pen.fillStyle = palette.soft;
    const line = (...ends) => {
      pen.beginPath();
      pen.moveTo(ends[0], ends[1]);
      pen.lineTo(ends[2], ends[3]);
      pen.stroke();
    };
    pen.textAlign = "center";
    for (const [value, text] of mapTicks(axes.x.scale, frame.width / 70)) {
      const x = frame.left + axes.x.scale.place(value) * frame.width;
      line(x, frame.top, x, bottom);
      pen.fillText(text, x, bottom + 16);
    }
    pen.textAlign = "right";
    for (const [value, text] of mapTicks(axes.y.scale, frame.height / 45)) {
      const y = frame.top + (1 - axes.y.scale.place(value)) * frame.height;
      line(frame.left, y, right, y);
      pen.fillText(text, frame.left - 6, y + 4);
    }
    pen.textAlign = "center";
    const title = (axis) => `${axis.name}${axis.scale.log ? ", log scale" : ""}`;
    pen.fillText(title(axes.x), frame.left + frame.width / 2, bottom + 36);
    pen.save();
    pen.translate(14, frame.top + frame.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(title(axes.y), 0, 0);
    pen.restore();
    if (axes.x.name === "loss" && table.head.threshold !== null) {
      const x = frame.left + axes.x.scale.place(table.head.threshold) * frame.width;
      pen.strokeStyle = palette.ink;
      line(x, frame.top, x, bottom);
      pen.fillStyle = palette.ink;
      pen.textAlign = x > frame.left + frame.width / 2 ? "right" : "left";
      pen.fillText("τ", x + (pen.textAlign === "left" ? 5 : -5), frame.top - 5);
    }
  }

  /* One rectangle a call is slow for many records: these are written into pixels, over each other like ink. */
  function dots(rows, colour, alpha) {
    const ratio = canvas.width / (frame.left + frame.width + frame.right);
    const size = Math.round(ratio * (table.n > 20000 ? 2 : table.n > 2000 ? 3 : 5));
    const layer = element("canvas", { width: canvas.width, height: canvas.height });
    const ink = layer.getContext("2d");
    const image = ink.createImageData(layer.width, layer.height);
    const cover = new Float32Array(layer.width * layer.height);
    for (let k = 0; k < rows.length; k++) {
      const [x, y] = [Math.round(across(rows[k]) * ratio - size / 2), Math.round(upward(rows[k]) * ratio - size / 2)];
      if (!(x >= 0 && y >= 0 && x + size <= layer.width && y + size <= layer.height)) continue;
      for (let row = y; row < y + size; row++) {
        for (let at = row * layer.width + x, end = at + size; at < end; at++) cover[at] += (1 - cover[at]) * alpha;
      }
    }
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    for (let at = 0, to = 0; at < cover.length; at++, to += 4) {
      if (cover[at] === 0) continue;
      image.data[to] = red;
      image.data[to + 1] = green;
      image.data[to + 2] = blue;
      image.data[to + 3] = Math.round(255 * cover[at]);
    }
    ink.putImageData(image, 0, 0);
    pen.drawImage(layer, 0, 0, canvas.width / ratio, canvas.height / ratio);
  }

  function drawPoints() {
    const all = state.rows.length === table.n;
    if (!all) dots(counted(table.n), palette.soft, 0.18);
    dots(state.rows, all ? palette.members : palette.nonmembers, table.n > 20000 ? 0.45 : 0.75);
    if (state.pinned !== null) {
      pen.beginPath();
      pen.arc(across(state.pinned), upward(state.pinned), 8, 0, 2 * Math.PI);
      pen.lineWidth = 2.5;
      pen.strokeStyle = palette.ink;
      pen.stroke();
    }
  }

  function draw(colours) {
    const computed = getComputedStyle(document.documentElement);
    palette = colours || Object.fromEntries(Object.keys(PRINTED).map((name) => [name, computed.getPropertyValue(`--${name}`).trim()]));
    fit();
    if (axes === null || axes.x.name !== state.x || axes.y.name !== state.y) setAxes();
    pen.fillStyle = palette.raised;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    drawAxes();
    drawPoints();
    if (loop && loop.length > 1) {
      pen.beginPath();
      loop.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.lineWidth = 1.5;
      pen.strokeStyle = palette.ink;
      pen.stroke();
    }
  }

  function nearest(x, y) {
    let [best, closest] = [null, REACH * REACH];
    for (const i of state.rows) {
      const distance = (across(i) - x) ** 2 + (upward(i) - y) ** 2;
      if (distance < closest) [best, closest] = [i, distance];
    }
    return best;
  }

  function insideLoop(corners) {
    const chosen = new Uint8Array(table.n);
    let count = 0;
    for (const i of state.rows) {
      if (insidePolygon(across(i), upward(i), corners)) {
        chosen[i] = 1;
        count++;
      }
    }
    return count ? chosen : null;
  }

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.onpointerdown = (event) => {
    loop = [at(event)];
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (!loop) return;
    const [x, y] = at(event);
    const [px, py] = loop[loop.length - 1];
    if (Math.hypot(x - px, y - py) < DRAG) return;
    loop.push([x, y]);
    requestAnimationFrame(() => draw());
  };
  canvas.onpointerup = (event) => {
    const corners = loop;
    loop = null;
    if (!corners) return;
    if (corners.length > 2) actions.select(insideLoop(corners));
    else {
      const found = nearest(...at(event));
      actions.select(found === null ? null : Uint8Array.from({ length: table.n }, (_, i) => (i === found ? 1 : 0)), found);
    }
  };
  canvas.onpointercancel = () => {
    loop = null;
    draw();
  };
  canvas.onkeydown = (event) => {
    if (event.key === "Escape") return actions.select(null);
    if (event.key === "Enter" && state.pinned !== null) return actions.select(Uint8Array.from({ length: table.n }, (_, i) => (i === state.pinned ? 1 : 0)), state.pinned);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !state.rows.length) return undefined;
    event.preventDefault();
    const now = state.rows.indexOf(state.pinned);
    return actions.pin(state.rows[now < 0 ? 0 : Math.min(state.rows.length - 1, Math.max(0, now + step))]);
  };
  return { canvas, draw };
}
