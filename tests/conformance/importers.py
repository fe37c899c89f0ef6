"""Random configurations of nginx, HAProxy and Caddy beside what the gateway imports from them.

Both programs get the same requests, and targets tell what reached them. What fails is a target that answers what the
original refuses, whatever differs where the import's report names nothing, an import that does not start, and a panic.
Every other configuration is without the lines that its report names. The seed goes up by one with each configuration,
so `--seed N --seconds 0` shows one of them again.
"""

import collections
import random
import time

from importing import caddy, drawing, haproxy, known, nginx
from importing.least import least
from importing.side_by_side import Pair
from stand import Missing, Score, Stand, tool

ORIGINALS = [nginx, haproxy, caddy]
SECONDS = 35  # For each original.
LEAST_SECONDS = 20  # For each failure.


class Trial:
    """The configurations of one original, and their score."""

    def __init__(self, stand, original, program):
        self.pair, self.original = Pair(stand, original, program), original
        self.score, self.excuses = Score(f"import from {original.NAME}"), collections.Counter()
        self.invalid = 0

    def one(self, seed):
        """Compares one configuration."""
        source = random.Random(seed)
        tree, requests = self.original.draw(source), self.original.requests(source)
        if seed % 2:
            tree = self.pair.unnamed(tree)
        text = self.original.write(tree)
        outcome = self.pair.run(text, requests)
        if outcome.invalid:
            self.invalid += 1
            return
        self.score.total += len(requests)
        if outcome.trouble:
            self.trouble(seed, tree, requests, outcome.trouble)
            return
        self.score.passed += len(requests) - len(outcome.differences)
        failed = [each for each in outcome.differences if not self.excused(outcome, each, text)]
        for found in {each.signature(): each for each in reversed(failed)}.values():
            self.difference(seed, tree, found, len([each for each in failed if each.signature() == found.signature()]))

    def excused(self, outcome, found, text):
        """Counts a difference that is named by the report, or known."""
        why = known.reason(self.original.NAME, found, text)
        if why is None and outcome.losses and found.kind != "OPEN":
            why = "the import's report names something that is lost or differs"
        if why is None:
            return False
        self.excuses[why] += 1
        return True

    def finished(self):
        """The score, with how many requests there were for each reason."""
        self.score.known = [(f"{count} requests", why) for why, count in self.excuses.most_common()]
        self.score.excused = self.excuses.total() - len(self.excuses)
        return self.score

    def trouble(self, seed, tree, requests, told):
        """A refused import, or a panic."""
        last = told.splitlines()[-1][-40:]
        small = self.small(tree, lambda outcome, _: last in outcome.trouble, requests)
        self.score.failed.append((f"seed {seed}", f"{told}\n{small}"))

    def difference(self, seed, tree, found, count):
        """A difference: the configuration is made small while it is the same, and nowhere named."""
        def shows(outcome, text):
            return any(each.signature() == found.signature() and known.reason(self.original.NAME, each, text) is None
                       for each in outcome.differences if found.kind == "OPEN" or not outcome.losses)
        small = self.small(tree, shows, [found.request])
        self.score.failed.append((f"seed {seed}, {count} requests: {found.kind}", f"{found}\n{small}"))

    def small(self, tree, shows, requests):
        """The text of a small configuration that still shows something."""
        def still(tried):
            text = self.original.write(tried)
            return "@PORT@" in text and shows(self.pair.run(text, requests), text)
        return self.original.write(least(tree, still, LEAST_SECONDS))


def trial(args, original, seed, seconds):
    """Configurations of one original, until the time is over; at least one."""
    program = tool(original.NAME)
    with Stand(args) as stand:
        drawing.prepare(stand.folder.path)
        tried = Trial(stand, original, program)
        until, first = time.monotonic() + seconds, seed
        while seed == first or time.monotonic() < until:
            tried.one(seed)
            seed += 1
        print(f"     {original.NAME}: seeds {first} to {seed - 1}, {tried.invalid} refused by it", flush=True)
        return tried.finished()


def suites(args):
    """Every original that is installed."""
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    seconds = SECONDS if args.seconds is None else args.seconds
    scores, missing = [], []
    for original in ORIGINALS:
        try:
            scores.append(trial(args, original, seed, seconds))
        except Missing as error:
            missing.append(str(error))
    if not scores:
        raise Missing(", ".join(missing))
    if missing:
        print(f"-    importers: not installed: {', '.join(missing)}", flush=True)
    return scores
