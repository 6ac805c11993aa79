/* The embedded record table: base64 in the URL-safe alphabet, gzip, then a JSON head and columns of 32-bit words in planes of bytes. */
function decoded(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text, { alphabet: "base64url" });
  const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  const bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i);
  return bytes;
}

async function inflated(text) {
  const stream = new Blob([decoded(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function recordTable(text) {
  const bytes = await inflated(text);
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const n = head.records;
  let at = 4 + length;
  const words = () => {
    const column = new Uint32Array(n);
    const [a, b, c, d] = [at, at + n, at + 2 * n, at + 3 * n];
    for (let i = 0; i < n; i++) column[i] = bytes[a + i] | (bytes[b + i] << 8) | (bytes[c + i] << 16) | (bytes[d + i] << 24);
    at += 4 * n;
    return column;
  };
  const table = { n, head, ids: head.ids, rank: words(), label: null, group: null, numbers: new Map(), unfolded: new Set() };
  if (head.labels) table.label = words();
  if (head.groups) table.group = words();
  table.flags = words();
  for (const name of head.numbers) {
    const upper = words();
    const values = new Float64Array(n);
    const halves = new Uint32Array(values.buffer);
    for (let i = 0; i < n; i++) halves[2 * i + 1] = upper[i];
    table.numbers.set(name, values);
  }
  return table;
}

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const powerOfTen = (k) => "10" + String(k).replace(/[-0-9]/g, (c) => SUPERSCRIPTS[c]);
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/* Three significant digits, as everywhere on the page. */
function figureText(value) {
  if (Number.isNaN(value)) return "none";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e-4 && size < 1e6) return (size >= 999.5 ? whole.format(value) : value.toPrecision(3)).replace("-", "−");
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return `${mantissa.replace("-", "−")}\u202f×\u202f${powerOfTen(Number(exponent))}`;
}

/* A number of a column as the table shows it: counts as whole numbers. */
function cellText(table, name, value) {
  if (Number.isFinite(value) && Math.abs(value) < 1e6 && table.head.whole.includes(name)) return whole.format(value).replace("-", "−");
  return figureText(value);
}

/* 0, 1, …, n − 1. */
function counted(n) {
  const rows = new Uint32Array(n);
  for (let i = 0; i < n; i++) rows[i] = i;
  return rows;
}

/* Rows that pass every filter, in the order asked for; rows are stored riskiest first, so equal values stay so. */
function visibleRows(table, filters, sort) {
  const needle = filters.query.trim().toLowerCase();
  if (needle && !table.lowered) table.lowered = table.ids.map((id) => id.toLowerCase());
  const cut = table.head.cut;
  const kept = new Uint32Array(table.n);
  let count = 0;
  for (let i = 0; i < table.n; i++) {
    if (filters.label !== null && table.label[i] !== filters.label) continue;
    if (filters.group !== null && table.group[i] !== filters.group) continue;
    if (filters.finding !== null && !((table.flags[i] >>> filters.finding) & 1)) continue;
    if (filters.selection && !filters.selection[i]) continue;
    if (needle) {
      const id = table.lowered[i];
      if (!id.includes(needle) && !(cut && id.length === cut && needle.startsWith(id))) continue;
    }
    kept[count++] = i;
  }
  const rows = kept.subarray(0, count);
  return sort.by === "risk" ? (sort.down ? rows : rows.reverse()) : sortedRows(table, rows, sort);
}

function sortedRows(table, rows, sort) {
  const sign = sort.down ? -1 : 1;
  if (sort.by === "id" || sort.by === "label" || sort.by === "group") {
    const keys = sort.by === "id" ? idPlaces(table) : table[sort.by];
    return rows.sort((a, b) => sign * (keys[a] - keys[b]) || a - b);
  }
  const keys = table.numbers.get(sort.by);
  return rows.sort((a, b) => {
    const [x, y] = [keys[a], keys[b]];
    if (x === y) return a - b;
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b;
    return x < y ? -sign : sign;
  });
}

/* Places of the ids in their alphabetical order, digits by value: made once, since comparing text is slow. */
function idPlaces(table) {
  if (!table.places) {
    const collator = new Intl.Collator("en", { numeric: true });
    const order = counted(table.n).sort((a, b) => collator.compare(table.ids[a], table.ids[b]) || a - b);
    table.places = new Uint32Array(table.n);
    order.forEach((row, place) => (table.places[row] = place));
  }
  return table.places;
}
