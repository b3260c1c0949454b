# failures.awk - which tests of a log failed, with the last lines of each.
#
# use: awk -f tests/failures.awk build/test-logs/GROUP.log
#
# What ctest --output-on-failure and e2e/runner.py print: the former a line
# "N/M Test #K: NAME ...***Failed" with the test's output behind it, the latter
# "FAIL SECONDS NAME" with it indented. Nothing where no test is named: a build,
# a time limit; the end of the log says more then.

function flush_one(    i) {
    if (name == "")
        return
    print "FAILED " name
    for (i = n > LINES ? n - LINES + 1 : 1; i <= n; i++)
        print "    " line[i]
    name = ""
    n = 0
}

BEGIN { LINES = 12 }

# ctest's lines begin so, with its own indentation; one ends the block before.
/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    flush_one()
    if (/\*\*\*/ && !/\*\*\*Skipped/) {
        name = $0
        sub(/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /, "", name)
        # "NAME ..Subprocess aborted***Exception:": by a signal.
        if (!sub(/ \.*\*\*\*/, ": ", name) &&
            sub(/\*\*\*Exception:/, "", name))
            sub(/ \.*/, ": ", name)
        sub(/ +[0-9.]+ sec$/, "", name)
        from_ctest = 1
    }
    next
}
/^ +Start +[0-9]+: / || /^[0-9]+% tests passed, / { flush_one(); next }

/^FAIL / {
    flush_one()
    name = $0
    sub(/^FAIL +[0-9.]+ s +([0-9.]+ s CPU +)?/, "", name)
    from_ctest = 0
    next
}

name != "" && !from_ctest && !/^    / { flush_one() }
# cmocka's lines of what went well say nothing.
name != "" && !/^ *$/ && !/^\[ (RUN   |      OK) / {
    text = $0
    sub(/^    /, "", text)
    line[++n] = substr(text, 1, 400)
}
END { flush_one() }
