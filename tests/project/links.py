"""Every relative link of a Markdown page leads to a file of the tree, and every #anchor to a heading; the index of the documents lists
each page of docs/: ROOT is the argument."""
import pathlib, re, subprocess, sys

root = pathlib.Path(sys.argv[1])


def headings(page):
    """The anchors that GitHub makes of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    seen, anchors = {}, set()
    for title in re.findall(r"^#+ (.*)$", text, flags=re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        n = seen[anchor] = seen.get(anchor, -1) + 1
        anchors.add(f"{anchor}-{n}" if n else anchor)
    return anchors


wrong, checked = [], 0
index = (root / "docs/README.md").read_text(encoding="utf-8")
listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True)
for name in listed.stdout.split():
    page = root / name
    if re.fullmatch(r"docs/\w+/[\w-]+\.md", name) and f"({name[5:]})" not in index:
        wrong.append(f"{name}: docs/README.md does not list it")
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href|srcset)="([^"]+)"', text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        checked += 1
        if not target.exists():
            wrong.append(f"{name}: {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in headings(target):
            wrong.append(f"{name}: {link}: no such heading")
if wrong or not checked:
    sys.exit("\n".join(wrong) or "no links found")
print(f"{checked} links lead somewhere")
