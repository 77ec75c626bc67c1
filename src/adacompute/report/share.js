// The share button: a picture drawn of the page's own headline, figure and numbers, and one paragraph.
const { share } = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("shared"), card = document.getElementById("card");
const status = document.getElementById("shared-status"), paragraph = document.getElementById("shared-text");
const INK = "#171a1f", DIM = "#5c6570", LINE = "#e2e5ea", BLUE = "#0072b2", ORANGE = "#c4540a"; // light, on any screen
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const CARD = { width: 1200, height: 630, scale: 2, edge: 56 };

function shareText() {
  return [share.words[0], moneyWords(), share.words[1]].filter(Boolean).join(" ");
}

function wrapped(pen, text, width) { // lines of at most this width
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && pen.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

function write(pen, text, { x, y, width, size, weight = 400, tint = INK, most = 9 }) { // returns where it ends
  pen.font = `${weight} ${size}px ${FONT}`;
  pen.fillStyle = tint;
  const lines = wrapped(pen, text, width);
  if (lines.length > most) lines.splice(most - 1, lines.length, `${lines[most - 1]} …`);
  for (const line of lines) {
    y += size * 1.22;
    pen.fillText(line, x, y);
  }
  return y;
}

function figureImage() { // the frontier as an image of its own, in its light colours
  const svg = document.querySelector("#figure-frontier-few svg");
  if (!svg) return Promise.resolve(null);
  const own = svg.cloneNode(true), box = svg.viewBox.baseVal;
  for (const mark of all(".mark", own)) mark.classList.remove("on");
  own.setAttribute("width", box.width * 3);
  own.setAttribute("height", box.height * 3);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(own))}`;
  return image.decode().then(() => image, () => null); // without it the picture has words only
}

async function drawCard() {
  const figure = await figureImage(), pen = card.getContext("2d"), { width, height, edge } = CARD;
  pen.setTransform(CARD.scale, 0, 0, CARD.scale, 0, 0);
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, width, height);
  for (const [at, tall] of [6, 10, 14].entries()) { // the brand's three bars
    pen.fillStyle = at === 2 ? ORANGE : BLUE;
    pen.fillRect(edge + at * 9, 66 - tall * 1.5, 7, tall * 1.5);
  }
  write(pen, "adacompute", { x: edge + 36, y: 40, width: 300, size: 21, weight: 650 });
  const left = 470;
  let y = write(pen, share.headline, { x: edge, y: 88, width: left, size: share.headline.length > 90 ? 30 : 38, weight: 680, most: 6 });
  y += 22;
  for (const [value, about] of [...share.numbers, ...moneyNumber()]) {
    y = write(pen, value, { x: edge, y: y + 4, width: left, size: 27, weight: 650, tint: BLUE, most: 1 });
    y = write(pen, about, { x: edge, y: y + 1, width: left, size: 16, tint: DIM, most: 2 }) + 6;
  }
  if (figure) {
    const room = { x: edge + left + 34, y: 52, width: width - 2 * edge - left - 34, height: 442 };
    const scale = Math.min(room.width / figure.width, room.height / figure.height);
    const top = room.y + (room.height - scale * figure.height) / 2;
    write(pen, share.figure, { x: room.x, y: 502, width: room.width, size: 13, tint: DIM, most: 2 });
    pen.drawImage(figure, room.x + room.width - scale * figure.width, top, scale * figure.width, scale * figure.height);
  }
  pen.fillStyle = LINE;
  pen.fillRect(edge, 552, width - 2 * edge, 1);
  write(pen, share.protocol, { x: edge, y: 560, width: width - 2 * edge, size: 15, tint: DIM, most: 2 });
  card.setAttribute("aria-label", [share.headline, ...share.numbers.flat(), share.protocol, share.figure].join(" "));
}

async function openShare() {
  show(null);
  paragraph.value = shareText();
  status.textContent = "";
  dialog.showModal();
  await drawCard();
  card.dataset.ready = "yes";
}

function saveCard() {
  card.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `adacompute-${share.name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "") || "report"}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }, "image/png");
}

async function copyText() {
  try {
    await navigator.clipboard.writeText(paragraph.value);
    status.textContent = "Copied.";
  } catch { // an old browser, or one that doesn't let a file copy
    paragraph.focus();
    paragraph.select();
    status.textContent = document.execCommand("copy") ? "Copied." : "Selected: copy it with your keyboard.";
  }
}

if (share && dialog.showModal) {
  const button = document.getElementById("share");
  button.hidden = false;
  button.addEventListener("click", openShare);
  document.getElementById("shared-close").addEventListener("click", () => dialog.close());
  document.getElementById("card-save").addEventListener("click", saveCard);
  document.getElementById("shared-copy").addEventListener("click", copyText);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // beside it
}
