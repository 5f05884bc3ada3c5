// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// Tree is what is known of a file beside its values: where each stands, and what was found. A path names a
// value: consumers[2].job.kind, and rows[shop.watchers][0] for the entries of a map.
type Tree struct {
	file     string
	text     []byte
	end      mark // the end of the text
	marks    map[string]mark
	keys     map[string][]string // of each map, in the order of the file
	order    []string            // the paths of marks as they were read
	bad      map[string]bool     // paths that have a problem already: nothing more is said about them
	seen     map[spot]bool
	problems problem.List
	alike    map[string]int // how many problems there are, by code
	rest     map[string]int // the index of the problem that stands for those left out, by code
	once     sync.Once
	cut      []string // the text as lines, once they are asked for
	looked   bool     // variables were looked up: one that is unknown is not set
}

// mark is where a value is written.
type mark struct {
	line, col int
	field     *field        // its declaration
	value     reflect.Value // where it was read into
	node      *yaml.Node    // what is written, behind an alias
	used      *yaml.Node    // where it is used: the alias, or the same node
	key       *yaml.Node    // of a list; nil for others
	raw       string        // the author's text, before variables; empty for mappings and lists
	variable  bool          // the text came out of a variable, so it is not shown
	unknown   bool          // a variable without a value: nothing can be said about it
	secret    bool
	word      bool // the word of the tag stands in place of the list
}

// spot is one finding at one place. A value that is merged into three consumers is wrong once, while a
// place that lacks two keys is wrong twice: what is to be done tells them apart, and names no path.
type spot struct {
	at        problem.Position
	code, fix string
}

// File is the name of the file as the caller gave it.
func (t *Tree) File() string { return t.file }

// At is where the value of a path is written. A value that is not in the file (a default) is at its
// nearest parent that is, at last the start of the file.
func (t *Tree) At(path string) problem.Position {
	for {
		if m, ok := t.marks[path]; ok {
			return t.position(m)
		}
		if path == "" {
			return problem.Position{File: t.file, Line: 1, Col: 1}
		}
		path = parent(path)
	}
}

// KeyAt is where the key of a list is written; the list itself begins at its first entry. It is as At for others.
func (t *Tree) KeyAt(path string) problem.Position {
	if m := t.marks[path]; m.key != nil {
		return t.at(m.key)
	}
	return t.At(path)
}

// Written reports whether the file holds the value of a path.
func (t *Tree) Written(path string) bool {
	_, ok := t.marks[path]
	return ok
}

// Sound reports whether the file holds the value of a path, its value is known, and nothing was found to be
// wrong with it or around it: only then can it be compared with another.
func (t *Tree) Sound(path string) bool {
	m, ok := t.marks[path]
	return ok && !m.unknown && !t.covered(path)
}

// lines are those of the text.
func (t *Tree) lines() []string {
	t.once.Do(func() { t.cut = split(t.text) })
	return t.cut
}

// Keys lists the keys of a map in the order of the file.
func (t *Tree) Keys(path string) []string { return t.keys[path] }

// Text is a scalar as its author wrote it, before ${NAME} was replaced.
func (t *Tree) Text(path string) string { return t.marks[path].raw }

// Quoted shows the author's text of a value in a message. What came out of a variable, and every secret,
// stays hidden.
func (t *Tree) Quoted(path string) string {
	m := t.marks[path]
	switch {
	case m.secret:
		return unseen
	case m.variable:
		return shown(m.raw) + ", whose value is not shown here"
	default:
		return shown(t.opening(m))
	}
}

// opening is a text without quotes as far as its first line goes. The next line may be no part of it to its author,
// but another key that lacks its colon.
func (t *Tree) opening(m mark) string {
	lines := t.lines()
	if m.node == nil || m.node.Style&^yaml.TaggedStyle != 0 || m.node.Line < 1 || m.node.Line > len(lines) || strings.Contains(lines[m.node.Line-1], m.raw) {
		return m.raw
	}
	cut := 0
	for i, c := range m.raw {
		if (c == ' ' || c == '\n') && strings.Contains(lines[m.node.Line-1], m.raw[:i]) {
			cut = i
		}
	}
	return m.raw[:cut] + "\n..."
}

// Refuse reports an error at the value of a path, after which nothing else is said about it. also is the
// path of a second value that belongs to it.
func (t *Tree) Refuse(path, code, what, fix string, also ...string) {
	t.bad[path] = true
	t.add(problem.Problem{At: t.At(path), Severity: problem.Error, Code: code, What: what, Fix: fix, Also: t.second(also)})
}

// Warn reports a warning at the value of a path. also is as with Refuse.
func (t *Tree) Warn(path, code, what, fix string, also ...string) {
	t.add(problem.Problem{At: t.At(path), Severity: problem.Warning, Code: code, What: what, Fix: fix, Also: t.second(also)})
}

// RefuseUse is Refuse at the place where the value of a path is used: at the alias, when it is written behind an anchor.
func (t *Tree) RefuseUse(path, code, what, fix string, also ...string) {
	t.bad[path] = true
	at := t.At(path)
	if m := t.marks[path]; m.used != nil {
		at = t.at(m.used)
	}
	t.add(problem.Problem{At: at, Severity: problem.Error, Code: code, What: what, Fix: fix, Also: t.second(also)})
}

func (t *Tree) second(also []string) problem.Position {
	if len(also) == 0 {
		return problem.Position{}
	}
	return t.At(also[0])
}

func (t *Tree) position(m mark) problem.Position {
	return problem.Position{File: t.file, Line: m.line, Col: m.col}
}

// at is the position of a node.
func (t *Tree) at(n *yaml.Node) problem.Position {
	if n.Line > t.end.line {
		return t.position(t.end) // an empty value at the end of the text
	}
	return problem.Position{File: t.file, Line: max(n.Line, 1), Col: max(n.Column, 1)}
}

// add keeps a problem, once.
func (t *Tree) add(p problem.Problem) {
	fix := p.Fix
	if p.Severity == problem.Warning && fix == "" {
		fix = p.What
	}
	if s := (spot{p.At, p.Code, fix}); !t.seen[s] {
		t.seen[s] = true
		t.keep(p)
	}
}

// maxAlike is how many problems of one kind a file may have before the rest is only counted. Nobody reads on, and
// an endless list hides those of another kind.
const maxAlike = 1000

// keep adds a problem to the list, or to the one that stands for the rest of its kind.
func (t *Tree) keep(p problem.Problem) {
	if t.alike == nil {
		t.alike, t.rest = map[string]int{}, map[string]int{}
	}
	t.alike[p.Code]++
	i, standing := t.rest[p.Code]
	switch {
	case t.alike[p.Code] <= maxAlike:
		t.problems = append(t.problems, p)
	case !standing:
		t.rest[p.Code] = len(t.problems)
		p.Also = problem.Position{}
		t.problems = append(t.problems, p)
	default:
		rest := &t.problems[i]
		rest.More++
		rest.What = fmt.Sprintf("%d more problems of this kind begin here and are not told one by one", rest.More+1)
		rest.Fix = "mend those before it, and check again"
	}
}

// report adds an error at a place that is no value: a key, a line.
func (t *Tree) report(at problem.Position, code, what, fix string, also ...problem.Position) {
	p := problem.Problem{At: at, Severity: problem.Error, Code: code, What: what, Fix: fix}
	if len(also) > 0 {
		p.Also = also[0]
	}
	t.add(p)
}

// refuse reports a problem of the value at path, whose node is n, after which nothing else is said about it.
func (t *Tree) refuse(path string, n *yaml.Node, code, what, fix string) {
	t.bad[path] = true
	t.report(t.at(n), code, what, fix)
}

// note remembers where a value is written.
func (t *Tree) note(path string, m mark) {
	if _, known := t.marks[path]; !known {
		t.order = append(t.order, path)
	}
	t.marks[path] = m
}

// covered reports whether a path or a part of the file around it has a problem already, so that one more
// would only repeat it.
func (t *Tree) covered(path string) bool {
	for p := path; p != ""; p = parent(p) {
		if t.bad[p] {
			return true
		}
	}
	return false
}

// titled names a section for a person: the entry of a list by its name where it has one.
func (t *Tree) titled(path string) string {
	if path == "" {
		return "the file"
	}
	if m, ok := t.marks[join(path, "name")]; ok && !m.variable && !m.secret && m.raw != "" {
		return path + " (" + short(m.raw) + ")"
	}
	return path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func keyed(path, key string) string { return path + "[" + key + "]" }

// parent cuts the last key or the last index off a path.
func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return ""
}
