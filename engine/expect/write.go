// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// Write shows a report to a person: a line for each test that did not pass, with what differs below it. With
// verbose, tests that passed have a line too.
func (r Report) Write(to io.Writer, verbose bool) {
	for _, result := range r.Results {
		switch {
		case result.Verdict == Passed && verbose:
			fmt.Fprintf(to, "%s: %s: passed\n", result.At, result.Name)
		case result.Verdict != Passed:
			fmt.Fprintf(to, "%s: %s: %s\n", result.At, result.Name, strings.ReplaceAll(printable(result.What), "\n", "\n    "))
			for _, line := range result.Details {
				fmt.Fprintf(to, "    %s\n", strings.ReplaceAll(printable(line), "\n", "\n        "))
			}
		}
	}
}

// printable is a text without what moves the cursor of a terminal or turns a text round: the server repeats the
// values of rows and events.
func printable(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c == '\n' || unicode.IsPrint(c) || unicode.Is(unicode.Zs, c) {
			b.WriteRune(c)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
	}
	return b.String()
}

// Count is how many tests ran, and how many of them did not pass.
func Count(reports []Report) (ran, bad int) {
	for _, r := range reports {
		ran += len(r.Results)
		for _, result := range r.Results {
			if result.Verdict != Passed {
				bad++
			}
		}
	}
	return ran, bad
}

// Summary is the outcome in one line.
func Summary(reports []Report) string {
	ran, bad := Count(reports)
	if bad > 0 {
		return fmt.Sprintf("%d of %s failed", bad, counting(ran, "test"))
	}
	return counting(ran, "test") + " passed"
}
