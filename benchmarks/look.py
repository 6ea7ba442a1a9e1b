"""How quick the page is: from the command to the address, first paint, keys, memory; with 100,000 bags.

    python benchmarks/look.py [--bags 100000] [--rounds 15]

Bags of five parts with 20 features and ten labels are written to a file and a logistic model is fitted to
some of them. `bagwise look` is started on both; the system's chromium opens the page. Times are medians (and
the largest) as the browser sees them; the memory is that of the server's process. A machine that does other
things at the same time makes all of it longer: the load is printed.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bagwise
from bagwise import Bags, Dataset
from bagwise.models import SingleInstanceLogisticRegression

PAINT = """() => new Promise(done => {
  const found = performance.getEntriesByName('first-contentful-paint')[0];
  if (found) done(found.startTime);
  else new PerformanceObserver(list => done(list.getEntriesByName('first-contentful-paint')[0].startTime))
    .observe({ type: 'paint', buffered: true });
})"""
# Milliseconds from a key to the change that answers it, measured inside the page.
PRESS = """([name, what, selector]) => new Promise(done => {
  const start = performance.now();
  const target = document.querySelector(selector);
  const before = what === 'text' ? target.textContent : target.className;
  const watch = new MutationObserver(() => {
    const now = document.querySelector(selector);
    if ((what === 'text' ? now.textContent : now.className) !== before) {
      watch.disconnect();
      done(performance.now() - start);
    }
  });
  watch.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
  document.body.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
})"""


def make(folder, n_bags):
    rng = np.random.default_rng(0)
    z = rng.integers(0, 10, 5 * n_bags)
    centres = rng.normal(size=(10, 20)) * 1.5
    X = (centres[z] + rng.normal(size=(len(z), 20))).astype(np.float32)
    Y = np.zeros((n_bags, 10), dtype=np.int8)
    Y[np.repeat(np.arange(n_bags), 5), z] = 1
    bags = Bags(X, np.arange(0, len(z) + 1, 5), bag_ids=[f"bag{k:06d}" for k in range(n_bags)])
    data = Dataset(bags, Y, tuple(f"label {k}" for k in range(10)), instance_Y=z)
    bagwise.write(data, folder / "bags.parquet")
    some = data[:1000]
    model = SingleInstanceLogisticRegression().fit(some.labelled_bags(), some.Y)
    model.label_names_ = data.label_names
    bagwise.save(model, folder / "model.skops")


def memory(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def show(what, values, unit="ms"):
    print(f"{what:<44}{statistics.median(values):9.0f} {unit}   largest {max(values):.0f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bags", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or sys.exit("no chromium here")
    folder = Path(tempfile.mkdtemp())
    make(folder, asked.bags)
    command = [sys.executable, "-m", "bagwise", "look", folder / "model.skops", folder / "bags.parquet"]
    started = time.perf_counter()
    server = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    print(f"{asked.bags:,} bags; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'address printed after':<44}{time.perf_counter() - started:9.1f} s")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(re.search(r"http\S+", line)[0])
            page.wait_for_selector(".rows tbody tr")
            show("first paint, while bags are scored", [page.evaluate(PAINT)])
            page.wait_for_selector("text=scored so far", state="detached", timeout=300_000)
            print(f"{'all bags scored after':<44}{time.perf_counter() - started:9.1f} s")
            paints, rows = [], []
            for _ in range(asked.rounds):
                begin = time.perf_counter()
                page.reload(wait_until="commit")
                page.wait_for_selector(".rows tbody tr")
                rows.append(1e3 * (time.perf_counter() - begin))
                paints.append(page.evaluate(PAINT))
            show("first paint, page opened again", paints)
            show("first rows of the table", rows)
            base = page.url.split("#")[0]
            for name in ("uncertain", "score", "bag"):
                begin = time.perf_counter()
                page.click(f".rows thead >> text={name}")
                page.wait_for_function(
                    "name => [...document.querySelectorAll('[aria-sort]')]"
                    ".some(e => e.textContent.startsWith(name))",
                    arg=name,
                )
                show(f"sorted by {name}", [1e3 * (time.perf_counter() - begin)])
            page.goto(base + "#/bag/500")
            page.wait_for_selector(".bagpage")
            times = {
                "part after (→)": [],
                "label below (↓)": [],
                "yes (y), written to disk": [],
                "next bag (j)": [],
            }
            for _ in range(asked.rounds):
                page.evaluate("() => document.activeElement.blur()")
                times["part after (→)"].append(page.evaluate(PRESS, ["ArrowRight", "text", ".part h2"]))
                times["yes (y), written to disk"].append(page.evaluate(PRESS, ["y", "text", ".pill"]))
                times["label below (↓)"].append(page.evaluate(PRESS, ["ArrowDown", "text", ".part h2"]))
                page.wait_for_timeout(400)  # a person looks at the bag; the next one is fetched meanwhile
                times["next bag (j)"].append(page.evaluate(PRESS, ["j", "text", "main h1"]))
                page.wait_for_timeout(100)
            for what, values in times.items():
                show(what, values)
            browser.close()
        print(f"{'largest memory of the server':<44}{memory(server.pid):9.0f} MB")
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
