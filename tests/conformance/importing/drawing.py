"""What the three generators share: chances, texts made of trees, requests, and the files that configurations name.

A tree is a list: a text is a line, a pair of a head and a list is a block.
"""

import pathlib

PASSWORD = "authorization: Basic YW5uOnNlY3JldA=="  # ann:secret
WRONG = "authorization: Basic YW5uOndyb25n"
REQUESTS = 90
FILES = {
    "users": "ann:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n",
    "paths.lst": "# paths\n/x\n/admin\n",
    "hosts.lst": "a.test\nb.test\n",
    "nets.lst": "10.0.0.0/8\n127.0.0.1\n",
    "paths.map": "/x yes\n/admin no\n",
    "hosts.map": "a.test api\nb.test files\nnone.test gone\n",
    "prefixes.map": "/api api\n/api/v1 files\n/img files\n/ web\n",
    "regexes.map": "^/x/[0-9]+$ api\n\\.php files\n",
    "roles.map": "admin files\n",
    "ends.map": ".png files\n.php api\n",
    "www/index.html": "index",
    "www/x": "file x",
    "www/static/f.txt": "f",
    "www/static/secret.txt": "s",
    "www/static/index.html": "si",
    "www/secret/x": "sx",
}


def lines(text):
    """A list with one text for each line; `\\r` and `\\n` within one are what they are elsewhere."""
    return [line.strip().replace("\\r", "\r").replace("\\n", "\n") for line in text.splitlines() if line.strip()]


def some(random, chance):
    return random.random() < chance


def blocks(nodes, depth=0):
    """A tree in the way of nginx and Caddy."""
    made, pad = [], "\t" * depth
    for node in nodes:
        if isinstance(node, str):
            made.append(pad + node)
        else:
            made.append(pad + f"{node[0]} {{".lstrip())
            made += [blocks(node[1], depth + 1)] if node[1] else []
            made.append(pad + "}")
    return "\n".join(made)


def sections(nodes):
    """A tree in the way of HAProxy."""
    made = []
    for head, inner in nodes:
        made += [head] + [f"  {line}" for line in inner]
    return "\n".join(made) + "\n"


def without(nodes, numbers, ends, at=1):
    """A tree without the nodes that begin at some lines of its text; `ends` says how many lines end a block."""
    kept = []
    for node in nodes:
        head = node if isinstance(node, str) else node[0]
        unnamed = at not in numbers or "@PORT@" in head
        at += 1 + head.count("\n")
        if isinstance(node, tuple):
            inner, at = without(node[1], numbers, ends, at)
            node, at = (head, inner), at + ends
        kept += [node] if unnamed else []
    return kept, at


def requests(random, methods, hosts, paths, fields):
    """What is sent to both programs: method, Host, path, and a line of a header or nothing."""
    return [(random.choice(methods), random.choice(hosts), random.choice(paths),
             random.choice(fields) if some(random, 0.6) else "") for _ in range(REQUESTS)]


def prepare(folder):
    """Writes the files that configurations name by `@DIR@`."""
    for name, text in FILES.items():
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
