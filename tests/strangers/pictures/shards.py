"""Folders as ImageFolder lists them, and shards by webdataset, tarfile, GNU tar and bsdtar as webdataset reads them."""
import io, json, pathlib, random, shutil, subprocess, tarfile

import webdataset
from torchvision import datasets

LONG = "d" * 90 + "/" + "e" * 90 + "/" + "f" * 120


def members_of(pictures):
    """(name, content) of samples with names of every kind."""
    names = ["000001", "dir/000002", "dir.x/000003", "b c/\u00e9\u4e2d", LONG, "last"]
    result = []
    for i, (name, path) in enumerate(zip(names, pictures)):
        content = path.read_bytes()
        ending = "jpg" if content[:2] == b"\xff\xd8" else "PNG" if content[1:4] == b"PNG" else "webp"
        result += [(f"{name}.{ending}", content), (f"{name}.cls", f"{i * 7}\n".encode()),
                   (f"{name}.json", json.dumps({"kind": i + 1}).encode()), (f"{name}.seg.png", b"a mask")]
    result += [("README", b"no ending"), (".hidden.jpg", b""), ("__meta__/info.json", b"{}")]
    return result


def with_tarfile(path, members, form):
    with tarfile.open(path, "w", format=form) as archive:
        folder = tarfile.TarInfo("dir")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def with_program(path, members, scratch, command):
    tree = scratch / f"tree-{path.stem}"
    for name, content in members:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    names = "\n".join(name for name, _ in members) + "\n"
    subprocess.run([*command, "-cf", path, "-C", tree, "-T", "-"], input=names.encode(), check=True)


def with_webdataset(path, members):
    with webdataset.TarWriter(str(path), encoder=False) as writer:
        for name, content in members:
            key, _, ending = name.partition(".") if "/" not in name else (
                name[: name.index(".", name.rindex("/"))], ".", name[name.index(".", name.rindex("/")) + 1 :])
            if key and ending:
                writer.write({"__key__": key, ending: content})


def theirs_of(shards):
    """(label, content) as webdataset has them."""
    result = []
    for sample in webdataset.WebDataset([str(s) for s in shards], shardshuffle=False, empty_check=False):
        picture = next(sample[e] for e in ("jpg", "jpeg", "png", "webp") if e in sample)
        result.append((int(sample["cls"]), picture))
    return result


def ours_of(lines):
    if isinstance(lines, str):
        return lines
    return [(int(label), pathlib.Path(shard).read_bytes()[int(offset) : int(offset) + int(count)])
            for label, shard, offset, count in lines]


def check_shards(ours, check, pictures, scratch):
    members = members_of(pictures)
    short = [(n, c) for n, c in members if len(n) < 200]
    shards = []
    for form, name, what in ((tarfile.USTAR_FORMAT, "ustar", short), (tarfile.GNU_FORMAT, "gnu", members),
                             (tarfile.PAX_FORMAT, "pax", members)):
        shards.append(scratch / f"tarfile-{name}.tar")
        with_tarfile(shards[-1], what, form)
    shards.append(scratch / "webdataset.tar")
    with_webdataset(shards[-1], members)
    for program, forms in (("tar", ("gnu", "posix", "ustar", "oldgnu")), ("bsdtar", ("ustar", "pax", "gnutar"))):
        for form in forms if shutil.which(program) else ():
            shards.append(scratch / f"{program}-{form}.tar")
            with_program(shards[-1], short if form == "ustar" else members, scratch, [program, f"--format={form}"])
    for shard in shards:
        check.same("shards", shard.name, ours_of(ours.lines("shards", shard, "cls")), theirs_of([shard]))
    numbered = [scratch / f"s-{i:03}.tar" for i in range(3)]
    for target, shard in zip(numbered, shards):
        shutil.copy(shard, target)
    check.same("shards", "three", ours_of(ours.lines("shards", scratch / "s-{000..002}.tar", "cls")), theirs_of(numbered))
    kinds = [line[0] for line in ours.lines("shards", shards[1], "json.kind")]
    check.same("shards", "json", kinds, [str(i + 1) for i in range(len(pictures[:6]))])
    sparse = scratch / "sparse"
    sparse.write_bytes(b"")
    with open(sparse, "r+b") as file:
        file.truncate(1 << 20)
    subprocess.run(["tar", "--sparse", "-cf", scratch / "sparse.tar", "-C", scratch, "--transform=s/$/.jpg/", "sparse"], check=True)
    check.refused("sparse.tar", ours.ask("shards", scratch / "sparse.tar", "cls"))


def check_folder(ours, check, pictures, scratch):
    root, rng = scratch / "classes", random.Random(1)
    for name in ("b", "B", "_", "10", "9", "\u00e9", ".git", "b c"):
        for inner in ("", "x", "x y", "x/z", "X"):
            (root / name / inner).mkdir(parents=True, exist_ok=True)
            for i in range(rng.randint(1, 4)):
                shutil.copy(rng.choice(pictures), root / name / inner / f"{i * 7}{rng.choice(['.jpg', '.JPEG', '.png', '.Webp', '.txt'])}")
        shutil.copy(pictures[0], root / name / "z.png")
    (root / "b" / "link").symlink_to(root / "_")
    theirs = datasets.ImageFolder(str(root))
    check.same("folder", root, ours.lines("folder", root), [(str(label), path) for path, label in theirs.samples])


def check_lists(ours, check, made, scratch):
    pictures = [made / name for name in ("3-420-False.jpg", "3-RGB.png", "3-lossy.webp", "2-gray.jpg", "1-cmyk.jpg", "exif.jpg")]
    check_shards(ours, check, pictures, scratch)
    check_folder(ours, check, pictures, scratch)
