"""Learning again in a process of its own, so that looking and correcting go on meanwhile.

The child opens data, model and corrections by their names, writes model and answers into a folder and prints
its progress as lines of JSON. It ends when its parent does: then its standard input is closed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.actions.data import check_target
from bagwise.errors import BagwiseError, in_one_line
from bagwise.look.answers import Answers
from bagwise.look.relearning import model_beside, relearn, takes_parts
from bagwise.look.session import Session, open_session
from bagwise.persistence import load

_MODEL, _ANSWERS = "model.skops", "answers.npz"


class RelearningProcess:
    """One run of learning again: started, watched, stopped, and its model taken or left.

    Examples
    --------
    >>> from bagwise.look import open_session
    >>> RelearningProcess(open_session("digits", options={"n_bags": 10})).state()["stage"]
    'idle'
    """

    def __init__(self, session: Session, train: str | None = None) -> None:
        self.session, self.train = session, train
        self._mutex = threading.RLock()
        self._child: subprocess.Popen[str] | None = None
        self._folder: Path | None = None
        self._result: dict[str, Any] | None = None
        self._error: str | None = None
        self._stage, self._share = "idle", 0.0
        self._started, self._expected = 0.0, None

    def state(self) -> dict[str, Any]:
        """Stage ("idle", "starting", "preparing", "fitting", "scoring", "done", "failed"), share, result."""
        with self._mutex:
            running = self._child is not None
            answers = self.session.answers
            return {
                "stage": self._stage,
                "share": self._share,
                "seconds": round(time.monotonic() - self._started, 1) if running else None,
                "expected": self._expected,
                "error": self._error,
                "result": self._result if self._stage == "done" else None,
                "how": None if answers is None else takes_parts(answers.model),
                "train": self.train,
            }

    def start(self) -> None:
        """Start learning; an error if it is going on already."""
        with self._mutex:
            if self._child is not None:
                raise BagwiseError("learning goes on already")
            source = self.session.source
            if source["model"] is None:
                raise BagwiseError("there is no model to fit again; give one: bagwise look MODEL DATA")
            self.leave()
            self._folder = Path(tempfile.mkdtemp(prefix="bagwise-look-"))
            job = {
                **source,
                "corrections": str(self.session.corrections.path),
                "train": self.train,
                "folder": str(self._folder),
            }
            command = [sys.executable, "-c", "from bagwise.look.relearning_process import child; child()"]
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._stage, self._share, self._error = "starting", 0.0, None
            self._started = time.monotonic()
            threading.Thread(target=self._watch, args=(self._child, json.dumps(job)), daemon=True).start()

    def _watch(self, child: subprocess.Popen[str], job: str) -> None:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        said: list[str] = []
        listener = threading.Thread(target=lambda: said.extend(child.stderr or ()), daemon=True)
        listener.start()
        try:
            child.stdin.write(job + "\n")
            child.stdin.flush()  # left open: its end tells the child that we are gone
            for line in child.stdout:
                self._take(json.loads(line))
        except (OSError, ValueError) as error:
            self._error = self._error or f"the process that learns was lost: {error}"
        code = child.wait()
        listener.join(5)
        with self._mutex:
            if self._child is not child:
                return  # stopped, and perhaps another one started
            self._child = None
            if self._result is None and self._error is None:
                last = "".join(said).strip().splitlines()[-1:] or [f"it ended with code {code}"]
                self._error = f"learning failed: {last[0][:300]}"
            self._stage = "failed" if self._error else "done"

    def _take(self, line: dict[str, Any]) -> None:
        with self._mutex:
            if "error" in line:
                self._error = line["error"]
            elif "result" in line:
                self._result = line["result"]
                self._expected = line["result"]["seconds"]
            else:
                self._stage, self._share = line["stage"], line["share"]

    def stop(self) -> None:
        """End a run that goes on; nothing of it is kept."""
        with self._mutex:
            child, self._child = self._child, None
            if child is not None:
                child.kill()
                child.wait()
                self._stage = "idle"

    def use(self) -> str:
        """Look through the new model from now on; gives the file that it was written to."""
        with self._mutex:
            if self._result is None or self._folder is None:
                raise BagwiseError("no new model is there; learn again first")
            target = model_beside(self.session.source["model"])
            check_target(target)
            model = load(self._folder / _MODEL)
            shutil.copyfile(self._folder / _MODEL, target.with_name(f".{target.name}.part"))
            os.replace(target.with_name(f".{target.name}.part"), target)
            answers = Answers(model, self.session.bags)
            with np.load(self._folder / _ANSWERS) as kept:
                answers.values, answers.chosen = kept["values"], kept["chosen"]
            answers.done = len(answers.values)
            self.session.use(answers, str(target))
            self.leave()
            return str(target)

    def leave(self) -> None:
        """Forget the new model."""
        with self._mutex:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._result = self._error = None
            if self._child is None:
                self._stage = "idle"

    def close(self) -> None:
        """End all that goes on and remove what is left."""
        self.stop()
        self.leave()


def child() -> None:
    """What the child does: read the job, learn, print how far it is."""
    job = json.loads(sys.stdin.readline())

    def end_with_parent() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    tell = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a model prints is no progress

    def say(line: dict[str, Any]) -> None:
        tell.write(json.dumps(line) + "\n")

    try:
        say({"stage": "preparing", "share": 0.0})
        session = open_session(job["data"], job["model"], corrections=job["corrections"], **job["where"])
        folder = Path(job["folder"])
        result = relearn(
            session,
            folder / _MODEL,
            train=job["train"],
            step=lambda stage, share: say({"stage": stage, "share": round(share, 3)}),
        )
        np.savez(folder / _ANSWERS, values=result.pop("values"), chosen=result.pop("chosen"))
        say({"result": result})
    except Exception as error:
        if not isinstance(error, (BagwiseError, OSError, MemoryError)):
            traceback.print_exc()
        say({"error": in_one_line(error, 500)})
    tell.flush()
    os._exit(0)  # threads of libraries may wait
