// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/problem"
)

// hostile are files that grow, nest or repeat without end.
func hostile() map[string]string {
	bomb := good + "a0: &a0 [x]\n"
	for i := 1; i < 10; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	merge := "version: 1\nx0: &x0 {a: 1}\n"
	for i := 1; i < 10; i++ {
		merge += fmt.Sprintf("x%d: &x%d {<<: [%s*x%d]}\n", i, i, strings.Repeat(fmt.Sprintf("*x%d, ", i-1), 9), i-1)
	}
	lists := "version: 1\nconsumers:\n  - &c {name: aaa, job: {kind: a.b}, recipients: {list: [" + strings.Repeat("p, ", 999) + "q]}}\n" + strings.Repeat("  - *c\n", 4900)
	globs := "version: 1\nconsumers:\n"
	for i := range 200 {
		globs += fmt.Sprintf("  - {name: globs-%d, job: {kind: a.%d}, recipients: none, types: [", i, i)
		for j := range 100 {
			globs += fmt.Sprintf("'*a*b*%d*', ", j)
		}
		globs += "'*']}\n"
	}
	var keys, names strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&keys, "key%d: 1\n", i)
	}
	for i := range 1000 {
		fmt.Fprintf(&names, "  - {name: C%d, batch: 0, poll_interval: 1, job: {kind: a b, priority: 9}, recipients: {feild: audience}}\n", i)
	}
	return map[string]string{
		"alias bomb":        bomb,
		"aliases in use":    strings.ReplaceAll(bomb, "recipients: none", "recipients: {list: *a9}"),
		"merge bomb":        merge + "consumers:\n  - <<: *x9\n",
		"repeated lists":    lists,
		"many patterns":     globs,
		"unknown keys":      good + keys.String(),
		"all wrong":         "version: 1\nconsumers:\n" + names.String(),
		"brackets":          strings.Repeat("[", 20000),
		"braces":            strings.Repeat("{a: ", 20000),
		"dashes":            strings.Repeat("- ", 20000),
		"questions":         strings.Repeat("? ", 20000),
		"one key again":     good + "log:\n" + strings.Repeat("  level: info\n", 100_000),
		"self":              good + "database: &d {roles: *d}\n",
		"self merge":        good + "database: &d {<<: *d}\n",
		"too large":         good + "#" + strings.Repeat("x", MaxSize),
		"50 MB":             strings.Repeat("consumers: [a]\n", 50<<20/15),
		"one long text":     good + "log: {level: " + strings.Repeat("x", MaxSize-200) + "}\n",
		"one long comment":  "#" + strings.Repeat("x", MaxSize-200),
		"many values":       "version: 1\nconsumers: [" + strings.Repeat("a,", 60_000) + "a]\n",
		"many nulls":        "version: 1\nconsumers: {" + strings.Repeat("?,", 240_000) + "a}\n",
		"many dashes":       "version: 1\nconsumers:\n" + strings.Repeat("- a\n", 60_000),
		"many broken lines": good + strings.Repeat("  x: 1\n", 100_000),
		"unclosed":          good + "log: {level: \"" + strings.Repeat("a\n", 400_000),
		"long broken lines": good + strings.Repeat("    # "+strings.Repeat("y", 10_000)+"\n", 390) + "  x: [\n",
	}
}

// cost is what reading a file took.
type cost struct {
	took            time.Duration
	allocated, held int64 // megabytes: all that was asked for, and by how much the heap grew
}

func measured(text string) (*Config, problem.List, cost) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	cfg, problems := Parse("consumers.yaml", []byte(text), env)
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	const mega = 1 << 20
	return cfg, problems, cost{took, int64(after.TotalAlloc-before.TotalAlloc) / mega, (int64(after.HeapSys) - int64(before.HeapSys)) / mega} //nolint:gosec // far below the limit
}

// TestCase13HostileFiles: what grows or nests without end ends soon, with a problem, in bounded memory. The
// limit of time is far from what any of them takes: it only tells a stop from a hang.
func TestCase13HostileFiles(t *testing.T) {
	for name, text := range hostile() {
		cfg, problems, cost := measured(text)
		t.Logf("%s: %v, %d problems, %d MB", name, cost.took, len(problems), cost.allocated)
		if len(problems) == 0 || name != "many patterns" && (cfg != nil || problems.Errors() == 0) {
			t.Errorf("%s: no problem", name)
		}
		if cost.took > 30*time.Second {
			t.Errorf("%s: took %v", name, cost.took)
		}
		if cost.held > 200 {
			t.Errorf("%s: the heap grew by %d MB, want less than 200", name, cost.held)
		}
		for _, p := range problems {
			if p.At.Line < 1 || p.At.Col < 1 {
				t.Errorf("%s: a problem at %v", name, p.At)
			}
		}
	}
}

// A mistake is found at its line in a long file as in a short one.
func TestLongBrokenFiles(t *testing.T) {
	long := string(sized(500))
	lines := strings.Count(long, "\n")
	for _, wrong := range []string{
		"  - name: archive\n    job {kind: a.b}\n    recipients: none\n",
		"  - name: archive\n    job: {kind: a.b\n    recipients: none\n",
		"  - name: \"archive\n    job: {kind: a.b}\n    recipients: none\n",
		"  - name: archive\n   job: {kind: a.b}\n    recipients: none\n",
		"  - name: archive\n\tjob: {kind: a.b}\n    recipients: none\n",
		"  - name: @archive\n    job: {kind: a.b}\n    recipients: none\n",
		"  - name: archive\n    job: {kind: a.b}\n    types: [*.placed]\n    recipients: none\n",
		"  - name: one: two\n    job: {kind: a.b}\n    recipients: none\n",
	} {
		after := "  - {name: after, job: {kind: a.after}, recipients: none}\n"
		_, short := Parse("consumers.yaml", []byte("version: 1\nconsumers:\n"+wrong+after), env)
		_, found := Parse("consumers.yaml", []byte(long+wrong+after), env)
		for i := range short {
			short[i].At.Line += lines - 2
		}
		if diff := cmp.Diff(places(short), places(found)); diff != "" || len(found) == 0 {
			t.Errorf("%q (-in a short file +in a long one)\n%s", wrong, diff)
		}
	}
}

// 5,000 consumers are an honest file.
func TestManyConsumers(t *testing.T) {
	cfg, problems := Parse("consumers.yaml", sized(5000), env)
	if len(problems) > 0 || len(cfg.Consumers) != 5000 {
		t.Fatalf("5,000 consumers: %v", problems)
	}
	if _, problems := Parse("consumers.yaml", sized(5001), env); len(problems) != 1 || problems[0].Code != "long-list" {
		t.Errorf("5,001 consumers: got %v, want long-list", problems)
	}
}

// Many aliases without an anchor, or many places that look like one, do not keep the reader.
func TestManyUnknownAliases(t *testing.T) {
	for name, text := range map[string]string{
		"many":      good + "log: {level: [" + strings.Repeat("*a, ", 100_000) + "]}\n",
		"look like": good + strings.Repeat("# *a\n", 100_000) + "x: '" + strings.Repeat("*a ", 50_000) + "'\n" + "log: {level: *a}\n",
	} {
		begin := time.Now()
		_, problems := Parse("consumers.yaml", []byte(text), env)
		t.Logf("%s: %v, %d problems", name, time.Since(begin), len(problems))
		if problems.Errors() == 0 || problems[0].Code != "bad-yaml" || len(problems) > 50 {
			t.Errorf("%s: got %d problems, want up to 50", name, len(problems))
		}
	}
}

// Patterns of many stars are compared within a bound: before, such a file took seconds and more than a gigabyte.
func TestManyStars(t *testing.T) {
	var text strings.Builder
	text.WriteString("version: 1\nconsumers:\n")
	for i := range 400 {
		fmt.Fprintf(&text, "  - name: stars-%d\n    job: {kind: stars.%d}\n    recipients: none\n    types:\n", i, i)
		for j := range 100 {
			fmt.Fprintf(&text, "      - x%s%d\n", strings.Repeat(string(rune('a'+j%26))+"*", 20), j)
		}
	}
	cfg, problems, cost := measured(text.String())
	t.Logf("%v, %d MB", cost.took, cost.allocated)
	if cfg == nil || problems.Errors() > 0 || cost.allocated > 200 {
		t.Fatalf("%d errors, %d MB, want a configuration in less than 200 MB", problems.Errors(), cost.allocated)
	}
	c := &checker{Tree: cfg.tree, cfg: cfg}
	for i := range cfg.Consumers {
		c.types(i)
	}
	if c.compared > maxCovers+1000 {
		t.Errorf("%d characters were compared, want at most %d", c.compared, maxCovers)
	}
}
