/* What a record holds, where the page was given it: a picture, a text, tokens or the fields of a row, folded until asked for. */
const PREVIEW = 60;

function contentsCell(table, i) {
  const held = table.head.contents;
  if (i >= held.items.length) return element("td", { class: "content none" }, "–");
  const item = held.items[i];
  const build = { images: pictureParts, texts: textParts, rows: rowParts, tokens: tokenParts }[held.kind];
  const [preview, whole] = build(item, table.ids[i]);
  if (!whole) return element("td", { class: "content" }, preview);
  const fold = element("details", { open: table.unfolded.has(i) }, element("summary", {}, preview), whole);
  fold.ontoggle = () => (fold.open ? table.unfolded.add(i) : table.unfolded.delete(i));
  return element("td", { class: "content" }, fold);
}

function pictureParts(item, id) {
  const picture = (alt) => element("img", { src: `data:image/png;base64,${item}`, alt });
  return [picture(`record ${id.slice(0, PREVIEW)}`), picture("")];
}

function textParts(item) {
  const short = item.split("\n", 1)[0].slice(0, PREVIEW);
  if (short === item) return [element("p", {}, element("bdi", {}, item)), null];
  return [element("bdi", {}, `${short}…`), element("p", {}, element("bdi", {}, item))];
}

function tokenParts(item) {
  const parts = item.tokens.map(([text, shade]) => (shade ? element("span", { class: `gain${shade}` }, text) : text));
  const told = element("p", {}, element("bdi", {}, item.told));
  return [element("bdi", {}, `${item.told.slice(0, PREVIEW)}…`), element("div", {}, told, element("p", { class: "gains" }, element("bdi", {}, ...parts)))];
}

function rowParts(item) {
  const pairs = item.map(([name, value]) => `${name} ${value}`);
  const fields = item.map(([name, value]) => element("div", {}, element("dt", {}, element("bdi", {}, name)), element("dd", {}, element("bdi", {}, value))));
  const line = pairs.slice(0, 3).join(", ");
  const short = line.length > PREVIEW || pairs.length > 3 ? `${line.slice(0, PREVIEW)}…` : line;
  return [element("bdi", {}, short), element("dl", { class: "fields" }, ...fields)];
}

