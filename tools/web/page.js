// What is chosen, drawn and said; the worker predicts.
const $ = (id) => document.getElementById(id);
const settings = JSON.parse($('settings').textContent);
const source = document.createElement('canvas'); // the image as it is read
const video = Object.assign(document.createElement('video'), { muted: true, loop: true });
const waiting = new Map(), times = new Map(); // milliseconds by file
const views = ['A', 'B'].map((name) => {
  const section = $('view').content.cloneNode(true).firstChild;
  section.querySelector('span').textContent = `Budget of stitch ${name}`;
  section.setAttribute('aria-label', `Stitch ${name}`);
  $('views').append(section);
  const [slider, output, svg, canvas] = ['input', 'output', 'svg', 'canvas']
    .map((tag) => section.querySelector(tag));
  return { section, slider, output, svg, canvas, index: 0, found: null };
});
let manifest, worker, front = [], calls = 0, playing = 0;
window.demo = { views, times, loadImage };

const say = (text) => { $('status').textContent = text; };
function problem(text) {
  $('problem').textContent = text;
  $('problem').hidden = !text;
  if (text) say('');
}

function ask(job, transfer = []) {
  return new Promise((resolve, reject) => {
    waiting.set(++calls, [resolve, reject]);
    worker.postMessage({ id: calls, ...job }, transfer);
  });
}

function start() {
  views[1].section.hidden = true;
  if (typeof WebAssembly !== 'object')
    return problem('This browser has no WebAssembly, which this page needs: try another browser.');
  if (location.protocol === 'file:')
    return problem('Open this page from a web server, such as python -m http.server.');
  worker = new Worker('worker.js', { type: 'module' });
  worker.onmessage = ({ data }) => {
    const [resolve, reject] = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.problem) reject(new Error(data.problem)); else resolve(data);
  };
  worker.onerror = () => problem('This browser cannot run the script of this page.');
  if (navigator.gpu) $('backend').add(new Option('GPU (WebGPU)', 'webgpu'));
  open().then(setUp).catch((error) => problem(error.message));
}

async function open() {
  const backend = $('backend').value, opened = await ask({ open: backend });
  manifest = opened.manifest;
  const where = backend === 'webgpu' ? 'the GPU' : `${opened.threads} CPU thread(s)`;
  say(`The model is loaded and runs on ${where}.`);
}

function setUp() {
  front = paretoFront(manifest.stitches, manifest.ranked_by);
  const files = front.flatMap((s) => s.files).filter((file) => file.format === 'onnx');
  const precisions = new Set(files.map((file) => file.precision));
  for (const precision of precisions) $('precision').add(new Option(precision));
  $('precisions').hidden = precisions.size < 2;
  views.forEach((view, i) => {
    view.slider.max = front.length - 1;
    view.slider.oninput = () => { choose(view, +view.slider.value); show(); };
    choose(view, i ? front.length - 1 : 0);
  });
  const done = ['resize', 'channels', 'batch'], steps = manifest.caller.before.map((s) => s.step);
  const left = steps.filter((name) => !done.includes(name));
  if (left.length) $('notes').textContent =
    `The whole image runs in one call here, without these steps of the model's own test: ${left.join(', ')}.`;
  for (const name of settings.images) {
    const button = document.createElement('button'), image = new Image();
    Object.assign(image, { src: `images/${name}`, alt: name });
    Object.assign(button, { type: 'button', onclick: () => loadImage(image.src) }).append(image);
    $('images').append(button);
  }
  if (settings.images.length) loadImage(`images/${settings.images[0]}`);
}

function paretoFront(stitches, ranked) {
  const sign = ranked?.higher_is_better === false ? -1 : 1, kept = [];
  const score = (s) => (ranked ? sign * s.metrics[ranked.metric] : s.flops);
  const known = stitches.filter((s) => !Number.isNaN(score(s)));
  for (const s of known.sort((a, b) => a.flops - b.flops || score(b) - score(a)))
    if (!kept.length || score(s) > score(kept.at(-1))) kept.push(s);
  return kept;
}

function fileOf(stitch) {
  const files = stitch.files.filter((file) => file.format === 'onnx');
  return files.find((file) => file.precision === $('precision').value) ?? files[0];
}

function choose(view, index) {
  view.index = view.slider.value = index;
  drawRoute(view.svg, front[index]);
  label(view);
}

function label(view) {
  const stitch = front[view.index], ms = times.get(fileOf(stitch).name);
  const metric = manifest.ranked_by?.metric;
  const text = [`stitch ${stitch.id}`, stitch.route,
    `${(stitch.flops / 1e9).toPrecision(3)} GFLOPs`,
    ms ? `${+ms.toPrecision(3)} ms here` : 'not measured here yet',
    ...(metric ? [`${metric} ${stitch.metrics[metric].toFixed(2)}`] : [])].join(', ');
  if (view.output.textContent !== text) view.output.textContent = text;
  view.slider.setAttribute('aria-valuetext', text);
}

function drawRoute(svg, stitch) {
  const { anchors } = manifest, high = 66 / anchors.length, points = [];
  const used = new Set();
  for (const [name, begin, end] of stitch.segments) for (let i = begin; i < end; i++) {
    const row = anchors.findIndex((anchor) => anchor.name === name);
    used.add(`${name} ${i}`);
    points.push(`${45 + (i + 0.5) * 350 / anchors[row].depth},${2 + (row + 0.45) * high}`);
  }
  const add = (tag, settings, text = '') => {
    const part = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(settings)) part.setAttribute(key, value);
    part.textContent = text; // names are of the bundle's maker: never markup
    svg.append(part);
    return part;
  };
  svg.replaceChildren();
  svg.setAttribute('aria-label', `Route of stitch ${stitch.id}: ${stitch.route}`);
  if (stitch.branches) return drawBranches(add, stitch.branches, anchors[0]);
  anchors.forEach(({ name, depth }, row) => {
    const y = 2 + row * high, width = 350 / depth;
    for (let i = 0; i < depth; i++) add('rect', { x: 45 + i * width, y, width: width - 2, rx: 2,
      height: 0.9 * high, class: `${used.has(`${name} ${i}`) ? 'on' : ''} ${row < anchors.length - 1 ? 'fast' : ''}` });
    add('text', { y: (row + 0.6) * high }, name);
  });
  add('polyline', { points: points.join(' ') });
}

// A column for each block, with a cell for each branch, filled by its share of units.
function drawBranches(add, branches, { name, depth }) {
  const width = 350 / depth, cells = new Map();
  for (const branch of branches) cells.set(branch[0], [...(cells.get(branch[0]) ?? []), branch]);
  for (const [block, parts] of cells) parts.forEach(([, units, all], row) => {
    const height = 66 / parts.length - 2, y = 2 + row * (height + 2);
    const place = { x: 45 + block * width, width: width - 2, rx: 1 };
    const share = height * units / all;
    const cell = add('rect', { ...place, y, height, class: 'cell' });
    cell.append(add('title', {}, `block ${block}: ${units} of ${all}`));
    const fill = { ...place, y: y + height - share, height: share, 'pointer-events': 'none' };
    if (units) add('rect', { ...fill, class: units < all ? 'part' : 'on' });
  });
  add('text', { y: 38 }, name);
}

async function loadImage(url) {
  stop();
  const image = Object.assign(new Image(), { src: url });
  const failed = await image.decode().catch(() => true);
  if (failed) return problem('The browser cannot read this file as an image.');
  take(image, image.naturalWidth, image.naturalHeight);
  source.url = url;
  await show();
}

function take(image, width, height) {
  Object.assign(source, { width, height });
  source.getContext('2d', { willReadFrequently: true }).drawImage(image, 0, 0);
}

let running = null, again = false;
// Predicts with what is chosen now; while that runs, the last wish alone is kept.
function show() {
  again = true;
  running ??= (async () => {
    while (again) {
      again = false;
      for (const view of views) if (!view.section.hidden) await predict(view);
    }
    problem('');
  })().catch((error) => { stop(); problem(error.message); }).finally(() => { running = null; });
  return running;
}

async function predict(view, index = view.index) {
  if (!source.width || !front.length) return;
  const { width, height } = source, file = fileOf(front[index]);
  const { data } = source.getContext('2d').getImageData(0, 0, width, height);
  const found = await ask({ file, pixels: data, width, height }, [data.buffer]);
  times.set(file.name, found.ms);
  view.found = { ...found, stitch: front[index].id, url: source.url };
  paint(view);
  label(view);
  return found.ms;
}

function colourOf(i) {
  const part = (k) => Math.round(128 + 115 * Math.cos(2 * Math.PI * (i * 0.618 + k / 3)));
  return manifest.palette[i] ?? [0, 1, 2].map(part);
}

function paint(view) {
  const { map, rows, columns, stitch } = view.found;
  const picture = new ImageData(columns, rows), counts = [], colours = [];
  map.forEach((value, i) => {
    const colour = colours[value] ??= colourOf(value);
    for (let k = 0; k < 4; k++) picture.data[4 * i + k] = k < 3 ? colour[k] : 255;
    counts[value] = (counts[value] ?? 0) + 1;
  });
  const small = Object.assign(document.createElement('canvas'), { width: columns, height: rows });
  small.getContext('2d').putImageData(picture, 0, 0);
  const { width, height } = Object.assign(view.canvas, { width: source.width, height: source.height });
  const context = view.canvas.getContext('2d');
  context.drawImage(source, 0, 0);
  Object.assign(context, { globalAlpha: +$('opacity').value, imageSmoothingEnabled: false });
  context.drawImage(small, 0, 0, width, height);
  const percent = (n) => `${(100 * n / map.length).toFixed(1)} %`;
  const entries = Object.keys(counts).sort((a, b) => counts[b] - counts[a])
    .map((i) => [colours[i], `${manifest.classes[i] ?? `class ${i}`} ${percent(counts[i])}`]);
  const text = entries.map((entry) => entry[1]).join(', ');
  view.canvas.setAttribute('aria-label', `Prediction of stitch ${stitch}: ${text}`);
  if (view === views[0]) $('legend').replaceChildren(...entries.map(([colour, words]) => {
    const item = document.createElement('li'), swatch = document.createElement('i');
    swatch.style.background = `rgb(${colour.map(Math.round)})`;
    item.append(swatch, words);
    return item;
  }));
}

async function play(prepare) {
  stop();
  const turn = ++playing, ends = [];
  const failed = await prepare().then(() => video.play()).catch(() => true);
  if (failed) return problem('This page cannot use the video or the camera.');
  $('stop').hidden = false;
  while (turn === playing) {
    take(video, video.videoWidth, video.videoHeight);
    await show();
    ends.push(performance.now());
    if (ends.length > 20) ends.shift();
    const fps = 1000 * (ends.length - 1) / (ends.at(-1) - ends[0] || 1);
    if (turn === playing) say(`${fps.toFixed(1)} frames per second`);
    await new Promise(requestAnimationFrame);
  }
}

function stop() {
  playing++;
  video.pause();
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  $('stop').hidden = true;
}

async function measure() {
  if (!source.width) return say('Choose an image first.');
  for (const [i, stitch] of front.entries()) {
    const found = [];
    for (let n = 0; n < 4; n++) found.push(await predict(views[0], i));
    times.set(fileOf(stitch).name, found.slice(1).sort((a, b) => a - b)[1]);
    say(`Measured ${i + 1} of ${front.length} stitches.`);
  }
  views.forEach(label);
  await show();
}

$('file').onchange = ({ target: { files: [file] } }) => {
  const url = file && URL.createObjectURL(file);
  if (file?.type.startsWith('video/')) play(async () => { video.src = url; });
  else if (file) loadImage(url);
};
$('camera').onclick = () => play(async () => {
  video.srcObject = await navigator.mediaDevices.getUserMedia({ video: true });
});
$('stop').onclick = stop;
$('both').onchange = () => { views[1].section.hidden = !$('both').checked; show(); };
$('opacity').oninput = () => views.forEach((view) => view.found && paint(view));
$('precision').onchange = () => { views.forEach(label); show(); };
$('backend').onchange = () => open().then(show, (error) => problem(error.message));
$('measure').onclick = () => { stop(); measure().catch((error) => problem(error.message)); };
start();
