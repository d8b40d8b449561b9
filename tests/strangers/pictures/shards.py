"""Folders as ImageFolder lists them, and shards by webdataset, tarfile, GNU tar and bsdtar as webdataset reads them."""
import io, json, random, re, shutil, subprocess, tarfile, zlib

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


def with_program(path, members, scratch, command, write=lambda path, content: path.write_bytes(content)):
    tree = scratch / f"tree-{path.stem}"
    for name, content in members:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        write(tree / name, content)
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


def told(samples):
    """(label, content) as the program tells it: label, bytes, checksum."""
    return [(str(label), str(len(content)), f"{zlib.crc32(content):08x}") for label, content in samples]


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
        check.same("shards", shard.name, ours.lines("shards", shard, "cls"), told(theirs_of([shard])))
    numbered = [scratch / f"s-{i:03}.tar" for i in range(3)]
    for target, shard in zip(numbered, shards):
        shutil.copy(shard, target)
    check.same("shards", "three", ours.lines("shards", scratch / "s-{000..002}.tar", "cls"), told(theirs_of(numbered)))
    kinds = [line[0] for line in ours.lines("shards", shards[1], "json.kind")]
    check.same("shards", "json", kinds, [str(i + 1) for i in range(len(pictures[:6]))])


def sparse_files():
    """Names and contents with holes of every kind; the long one has more pieces than a header holds."""
    bytes_of = random.Random(1).randbytes
    many = b"".join(bytes_of(4096) + bytes(8192) for _ in range(60))
    contents = {"front": bytes(65536) + bytes_of(100), "behind": bytes_of(5000) + bytes(70000), "one/hole": bytes(20000),
                "dense": bytes_of(9000), "small": b"x", "empty": b"", LONG: many, "b c/\u00e9\u4e2d": many[:50000],
                "both": bytes(4096) + bytes_of(4096) + bytes(4096)}
    return [pair for i, (name, content) in enumerate(contents.items())
            for pair in ((f"{name}.jpg", content), (f"{name}.cls", str(i).encode()))]


def write_with_holes(path, content):
    with open(path, "wb") as file:
        for at in range(0, len(content), 4096):
            piece = content[at : at + 4096]
            if any(piece):
                file.seek(at)
                file.write(piece)
        file.truncate(len(content))


def check_damaged_map(ours, check, shard, scratch):
    """Other digits in a sparse file's map: refused, or what tarfile makes of them."""
    whole, rng = shard.read_bytes(), random.Random(2)
    spans = [match.span() for match in re.finditer(rb"GNU\.sparse\.[a-z]+=[0-9,.]+|(?:[0-9]+\n){3,}", whole)]
    for i in range(60):
        damaged = bytearray(whole)
        places = [at for at in range(*rng.choice(spans)) if damaged[at] in b"0123456789"]
        damaged[rng.choice(places)] = rng.choice(b"0123456789-")
        path = scratch / "damaged.tar"
        path.write_bytes(damaged)
        lines = ours.lines("shards", path, "cls")
        if isinstance(lines, str):
            check.refused(path, lines)
            continue
        try:
            theirs = told(theirs_of([path]))
        except Exception as error:
            theirs = repr(error)
        check.same("damaged sparse files", f"{shard.name} {i}", lines, theirs)


def check_sparse(ours, check, scratch):
    forms = {("tar", "gnu"): ["--sparse", "--format=gnu"], ("tar", "oldgnu"): ["--sparse", "--format=oldgnu"],
             ("bsdtar", "pax"): ["--format=pax"]}
    for version in ("0.0", "0.1", "1.0"):
        forms["tar", version] = ["--sparse", "--format=posix", f"--sparse-version={version}"]
    files = sparse_files()
    # Of a name that is long or no ASCII tarfile takes what pax headers give programs that know no sparse files.
    for (program, form), options in forms.items():
        if not shutil.which(program):
            continue
        for what, members in (("all", files), ("plain", [(n, c) for n, c in files if len(n) < 100 and n.isascii()])):
            shard = scratch / f"sparse-{program}-{form}-{what}.tar"
            with_program(shard, members, scratch, [program, *options], write_with_holes)
            samples = [(int(label), content) for (_, content), (_, label) in zip(members[::2], members[1::2])]
            lines = ours.lines("shards", shard, "cls")
            check.same("sparse files", shard.name, lines, told(samples))
        check.same("sparse files", f"{shard.name} by webdataset", lines, told(theirs_of([shard])))
        with tarfile.open(shard) as archive:
            sparse = [member.name for member in archive if member.issparse()]
        check.same("sparse members", shard.name, sparse, ["front.jpg", "behind.jpg", "one/hole.jpg", "both.jpg"])
        if form in ("0.0", "0.1", "1.0"):
            check_damaged_map(ours, check, shard, scratch)


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
    check_sparse(ours, check, scratch)
