#!/usr/bin/env bash
# The headers of Ceph that an ObjectStore needs, from Debian's source package.
#
# Nothing of Ceph is built, so the two tarballs suffice: the .dsc is not fetched, and the
# checksums come from apt's signed index.
. "$(dirname "$0")/../lib.sh"

enter_ready
out=$SHARED/ceph-headers
# Made anew when this script changes: what it generates is part of the ABI.
stamp=$out/.made-by-$(sha256sum "$0" | cut -c1-16)
if [ -e "$stamp" ]; then
    say "headers are there"
    exit 0
fi

sources=$CACHE/source
version=$(inside dpkg-query -W -f '${Version}' ceph-osd)
version=${version%+b*}
upstream=$sources/ceph_${version%%-*}.orig.tar.xz
debian=$sources/ceph_$version.debian.tar.xz
mkdir -p "$sources"
if [ ! -e "$upstream" ] || [ ! -e "$debian" ]; then
    echo "deb-src $(mirror) trixie main" > "$ROOT/etc/apt/sources.list.d/source.list"
    inside apt-get update -qq -o APT::Get::List-Cleanup=0 || skip "the package server does not answer"
    inside apt-get source -qq --download-only --print-uris "ceph=$version" |
        grep -v '\.dsc' > "$CACHE/uris" || die "no source package of ceph $version"
    while read -r uri file _ sum; do
        say "fetching $file"
        inside /usr/lib/apt/apt-helper download-file "${uri//\'/}" "/tmp/$file" "$sum" >/dev/null ||
            skip "$file cannot be fetched"
        mv "$ROOT/tmp/$file" "$sources/"
    done < "$CACHE/uris"
fi

rm -rf "$out"
mkdir -p "$out/generated/include"
folders=(auth common common/options compressor crush global include include/'*' json_spirit kv
    librados log mds mon msg msg/async os osd osdc xxHash)
wanted=('*/src/*.h')
for folder in "${folders[@]}"; do
    wanted+=("*/src/$folder/*.h" "*/src/$folder/*.hpp")
done
wanted+=('*/src/common/options/*.yaml.in' '*/src/common/options/y2c.py')
# Not every folder has files of both kinds, which tar calls an error.
tar -xJf "$upstream" -C "$out" --strip-components=1 --wildcards --no-wildcards-match-slash \
    "${wanted[@]}" 2> "$out/tar.log" || grep -q 'Not found in archive' "$out/tar.log" || die "tar"
fmt10=debian/patches/0030-fix-ftbfs-with-fmt10.patch
tar -xJf "$debian" -C "$out" "$fmt10"
# The patch also changes sources that are not here: only those hunks may fail.
(cd "$out" && patch -s -p1 -f < "$fmt10" > patch.log 2>&1) || true
! find "$out" -name '*.h.rej' | grep -q . || die "a header does not take $fmt10"

generated=$out/generated/include
# What Debian's amd64 build has, as far as headers look at it.
{
    printf '#pragma once\n'
    printf '#define %s\n' CEPH_HAVE_FALLOCATE HAVE_SYNC_FILE_RANGE HAVE_MALLINFO HAVE_IN_ADDR_T \
        HAVE_SUSECONDS_T HAVE_LZ4 HAVE_LIBAIO HAVE_LIBURING HAVE_LIBTCMALLOC WITH_BLUESTORE \
        WITH_RBD HAVE_THREAD_SAFE_RES_QUERY CEPH_HAVE_SPLICE HAVE_EVENTFD CEPH_LITTLE_ENDIAN \
        HAVE_PTHREAD_SPINLOCK HAVE_NAME_TO_HANDLE_AT HAVE_STAT_ST_MTIM_TV_NSEC HAVE_STATIC_CAST \
        HAVE_PTHREAD_RWLOCKATTR_SETKIND_NP HAVE_STDLIB_MAP_SPLICING HAVE_FUNC HAVE_PRETTY_FUNC \
        HAVE_SSE HAVE_SSE2 HAVE_GETENTROPY HAVE_ATTR_SYMVER
    printf '#define %s 1\n' HAVE_POSIX_FADVISE HAVE_POSIX_FALLOCATE HAVE_SYS_SYNCFS HAVE_PWRITEV \
        HAVE_SYS_MOUNT_H HAVE_SYS_PARAM_H HAVE_SYS_TYPES_H HAVE_SYS_VFS_H HAVE_EXECINFO_H \
        HAVE___S16 HAVE___S32 HAVE___S64 HAVE___S8 HAVE___U16 HAVE___U32 HAVE___U64 HAVE___U8 \
        HAVE_ARPA_NAMESER_COMPAT_H HAVE_GETGROUPLIST HAVE_FDATASYNC HAVE_SYS_PRCTL_H \
        HAVE_LINUX_TYPES_H HAVE_LINUX_VERSION_H HAVE_SCHED HAVE_PIPE2 STRERROR_R_CHAR_P \
        HAVE_PTHREAD_SETNAME_NP HAVE_PTHREAD_GETNAME_NP
} > "$generated/acconfig.h"
cat > "$generated/ceph_ver.h" <<X
#pragma once
#define CEPH_GIT_VER 0
#define CEPH_GIT_NICE_VER "$CEPH_VERSION"
#define CEPH_RELEASE ${CEPH_VERSION%%.*}
#define CEPH_RELEASE_NAME "reef"
#define CEPH_RELEASE_TYPE "stable"
X
# The structs of the options are part of the layout of CephContext. Only defaults hold
# @VARIABLES@, and a default is no part of a layout.
inside sh -e -c '
    cd /esker/ceph-headers
    for from in src/common/options/*.yaml.in; do
        name=$(basename "$from" .yaml.in)
        sed -E -e "s/default: @ms_bind_[a-z_]+@.*/default: 3/" -e "s/default: @[A-Za-z_]+@.*/default: x/" \
            "$from" > generated/options.yaml
        python3 src/common/options/y2c.py --input generated/options.yaml --output generated/options.cc \
            --legacy "generated/include/${name}_legacy_options.h" --name "$name"
    done
    rm generated/options.*' || die "y2c.py"
touch "$stamp"
say "$(find "$out" -type f | wc -l) files, $(du -sm "$out" | cut -f1) MB"
