// Runs the graphs of a bundle: one buffer of weights, a few sessions at a time.
const MAX_SESSIONS = 3;
const sessions = new Map(); // by file name, the one used last at the end
let ort, manifest, weights, backend;

async function read(file) {
  const response = await fetch(`bundle/${file.name}`, { cache: 'no-cache' });
  if (!response.ok) throw new Error(`The file ${file.name} of the bundle cannot be read.`);
  const data = new Uint8Array(await response.arrayBuffer());
  if (file.bytes && data.length !== file.bytes)
    throw new Error(`The file ${file.name} is damaged: ${data.length} bytes of ${file.bytes}.`);
  return data;
}

async function open(wanted) {
  backend = wanted;
  for (const session of sessions.values()) await session.release();
  sessions.clear();
  ort = await import(`./ort/ort.${backend}.min.mjs`);
  ort.env.wasm.wasmPaths = new URL('./ort/', self.location.href).href;
  const threads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;
  ort.env.wasm.numThreads = threads;
  if (!manifest) {
    const text = new TextDecoder().decode(await read({ name: 'manifest.json' }));
    try { manifest = JSON.parse(text); } catch { manifest = {}; }
    if (!manifest.version) throw new Error('The manifest of the bundle is damaged.');
    if (manifest.version !== 7)
      throw new Error('The bundle is of another version than this page: export it again.');
  }
  if (manifest.weights) weights ??= await read(manifest.weights);
  return { manifest, threads };
}

async function sessionOf(file) {
  let session = sessions.get(file.name);
  if (!session) {
    while (sessions.size >= MAX_SESSIONS) {
      const [oldest, other] = sessions.entries().next().value;
      sessions.delete(oldest);
      await other.release();
    }
    const externalData = file.weights ? [{ path: manifest.weights.name, data: weights }] : [];
    const options = { executionProviders: [backend], externalData };
    session = await ort.InferenceSession.create(await read(file), options);
  }
  sessions.delete(file.name);
  sessions.set(file.name, session);
  return session;
}

// Places and weights of OpenCV's bilinear resizing of 8-bit images, where 2048 is one.
function taps(length, wanted, atEnds) {
  const scale = 1 / (wanted / length), end = length - 1;
  const clip = (i) => Math.max(0, Math.min(end, i));
  const even = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));
  return Array.from({ length: wanted }, (_, i) => {
    const place = Math.fround((i + 0.5) * scale - 0.5), begin = Math.floor(place);
    const share = atEnds && (begin < 0 || begin >= end) ? 0 : Math.fround(place - begin);
    const weights = [Math.fround(1 - share), share].map((part) => even(2048 * part));
    return [clip(begin), clip(begin + 1), ...weights];
  });
}

// RGBA pixels as the graph takes them: planes of float32, resized as mm does.
function planes(pixels, width, height, [rows, columns], bgr) {
  const area = rows * columns, out = new Float32Array(3 * area);
  const xs = taps(width, columns, true), ys = taps(height, rows, false);
  const same = width === columns && height === rows;
  for (let i = 0; i < 3 * area; i++) {
    const c = Math.floor(i / area), y = Math.floor((i % area) / columns), x = i % columns;
    const [left, right, a, b] = xs[x], [top, bottom, e, f] = ys[y];
    const channel = bgr ? 2 - c : c;
    const line = (row) => (pixels[(row * width + left) * 4 + channel] * a +
      pixels[(row * width + right) * 4 + channel] * b) >> 4;
    out[i] = same ? pixels[(y * width + x) * 4 + channel]
      : Math.min(255, (((line(top) * e) >> 16) + ((line(bottom) * f) >> 16) + 2) >> 2);
  }
  return out;
}

function classesOf(scores, number, area) {
  const threshold = manifest.caller.after.find((step) => step.step === 'threshold')?.above;
  return Uint8Array.from({ length: area }, (_, i) => {
    if (number === 1) return 1 / (1 + Math.exp(-scores[i])) > threshold;
    let best = 0;
    for (let c = 1; c < number; c++) if (scores[c * area + i] > scores[best * area + i]) best = c;
    return best;
  });
}

async function predict({ file, pixels, width, height }) {
  const session = await sessionOf(file), begin = performance.now();
  const size = manifest.input.shape.slice(2);
  const data = planes(pixels, width, height, size, manifest.input.channels === 'BGR');
  const images = new ort.Tensor('float32', data, [1, 3, ...size]);
  const output = (await session.run({ [manifest.input.name]: images }))[session.outputNames[0]];
  const scores = await output.getData(), [, number, rows, columns] = output.dims;
  const map = classesOf(scores, number, rows * columns);
  output.dispose();
  return { map, rows, columns, ms: performance.now() - begin, sessions: sessions.size };
}

function sentence(error) {
  const text = String(error?.message ?? error);
  if (/out of memory|bad_alloc|allocation failed/i.test(text) || error instanceof RangeError)
    return 'The browser ran out of memory: take a cheaper stitch or a smaller bundle.';
  if (/^The .*\.$/.test(text)) return text;
  if (/WebAssembly|wasm/i.test(text))
    return 'This page needs WebAssembly, which cannot run here: try another browser.';
  return `The model cannot be run: ${text}`;
}

let queue = Promise.resolve(); // one thing at a time
self.onmessage = ({ data: { id, open: wanted, ...job } }) => {
  queue = queue.then(() => (wanted ? open(wanted) : predict(job))).then(
    (found) => self.postMessage({ id, ...found }),
    (error) => self.postMessage({ id, problem: sentence(error) }));
};
