"""Makes a configuration small that shows something."""

import time


def least(tree, shows, seconds):
    """A small tree that still shows it: pieces of lists are left out, halves first, then of what is left."""
    until = time.monotonic() + seconds

    def within(nodes, around):
        nodes = fewer(nodes, lambda tried: shows(around(tried)), until)
        for at, node in enumerate(nodes):
            if isinstance(node, tuple):
                def outer(inner, at=at, head=node[0], nodes=nodes):
                    return around(nodes[:at] + [(head, inner)] + nodes[at + 1:])
                nodes = nodes[:at] + [(node[0], within(node[1], outer))] + nodes[at + 1:]
        return nodes

    before = None
    while tree != before and time.monotonic() < until:  # What something asked for may go once that is gone.
        before, tree = tree, within(tree, lambda nodes: nodes)
    return tree


def fewer(nodes, shows, until):
    """A list without those pieces that are not needed."""
    size = len(nodes)
    while size >= 1:
        at = 0
        while at < len(nodes) and time.monotonic() < until:
            tried = nodes[:at] + nodes[at + size:]
            if shows(tried):
                nodes = tried
            else:
                at += size
        size //= 2
    return nodes
