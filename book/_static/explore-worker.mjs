// Runs the book's library under Pyodide: files copied from lib/ when the book was built.
let python;

async function library(here) {
  const listing = await (await fetch(`${here}pylib/files.json`, { cache: "no-cache" })).json();
  const address = (name) => `${here}pylib/${name}?v=${listing.version}`;
  return Promise.all(
    listing.files.map(async (name) => {
      const answer = await fetch(address(name));
      if (!answer.ok) throw new Error(`${name} is not there (${answer.status})`);
      return [name, await answer.text()];
    }),
  );
}

async function start(here) {
  const { loadPyodide } = await import(`${here}pyodide/pyodide.mjs`);
  const [pyodide, files] = await Promise.all([
    loadPyodide({ indexURL: `${here}pyodide/` }),
    library(here),
  ]);
  for (const [name, text] of files) {
    const path = `/library/${name}`;
    pyodide.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    pyodide.FS.writeFile(path, text);
  }
  pyodide.runPython("import sys; sys.path.insert(0, '/library')");
  return pyodide.pyimport("states");
}

async function started(here) {
  python ??= start(here);
  try {
    return await python;
  } catch (error) {
    python = undefined; // whoever asks next tries again
    throw error;
  }
}

// Without an id, Python is only to be ready when it will be asked.
onmessage = async ({ data: { id, here, target, controls, chosen } }) => {
  if (id === undefined) {
    started(here).then(() => postMessage({ ready: true }), () => {});
    return;
  }
  try {
    const states = await started(here);
    const told = (done, total) => postMessage({ id, progress: done / total });
    postMessage({ id, picture: states.draw(target, controls, chosen, told) });
  } catch (error) {
    postMessage({ id, error: String(error.message ?? error).trim().split("\n").at(-1) });
  }
};
