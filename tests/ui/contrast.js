// How far each text on the page stands out from what is behind it, as WCAG 2 counts it.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function colour(text) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, opacity] = canvas.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, opacity / 255];
}

function over(top, under) {
  if (top[3] >= 1) return top;
  return [0, 1, 2].map((at) => top[at] * top[3] + under[at] * (1 - top[3])).concat([1]);
}

function behind(node) {
  const layers = [];
  for (let each = node; each; each = each.parentElement) layers.push(colour(getComputedStyle(each).backgroundColor));
  return layers.reverse().reduce((under, top) => (top[3] ? over(top, under) : under), [255, 255, 255, 1]);
}

function luminance(parts) {
  const [red, green, blue] = parts.slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// How much of a text is seen: what is pale because something around it is must stand out, too.
function opacity(node) {
  let share = 1;
  for (let each = node; each; each = each.parentElement) share *= Number(getComputedStyle(each).opacity);
  return share;
}

const found = [];
for (const each of document.querySelectorAll("main *, body > header *")) {
  const hasText = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  // What is in a list box the system draws.
  if (!hasText || !each.checkVisibility() || each.closest("select")) continue;
  const back = behind(each);
  const [red, green, blue, own] = colour(getComputedStyle(each).color);
  const text = [red, green, blue, own * opacity(each)];
  const [light, dark] = [luminance(over(text, back)), luminance(back)].sort((a, b) => b - a);
  const ratio = Math.round(((light + 0.05) / (dark + 0.05)) * 100) / 100;
  found.push({ text: each.textContent.trim().slice(0, 40), ratio, element: `${each.tagName}.${each.className}` });
}
return found;
