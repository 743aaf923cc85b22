# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#
# Reads what `cargo test` printed, and prints the tests that failed with the beginning of what each said. Tests that said the same
# are one entry: a kernel that does not boot fails each of its cases.

BEGIN {
    MAX_LINES = 16
    MAX_WIDTH = 240
    MAX_NAMES = 6
    MAX_ENTRIES = 12
}

function finish() {
    if (name == "")
        return
    if (!(text in count))
        order[++entries] = text
    if (++count[text] <= MAX_NAMES)
        names[text] = names[text] "\n" name
    name = text = ""
    lines = 0
}

# libtest says "---- NAME stdout ----", libtest-mimic "---- NAME ----".
/^---- .* ----$/ {
    finish()
    name = substr($0, 6, length($0) - 10)
    sub(/ stdout$/, "", name)
    next
}

/^failures:$/ || /^test result: / {
    finish()
    next
}

/^stack backtrace:$/ {
    lines = MAX_LINES
}

name != "" && $0 != "" && lines < MAX_LINES {
    lines++
    text = text "\n    " substr($0, 1, MAX_WIDTH)
}

END {
    finish()
    for (at = 1; at <= entries && at <= MAX_ENTRIES; at++) {
        entry = order[at]
        more = count[entry] > MAX_NAMES ? sprintf("\nand %d more", count[entry] - MAX_NAMES) : ""
        print substr(names[entry], 2) more ":" entry
    }
    if (entries > MAX_ENTRIES)
        printf "... and %d more\n", entries - MAX_ENTRIES
    if (entries == 0)
        print "no test says why: see above"
}
