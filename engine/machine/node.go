// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// maxText is how large a table may be, in bytes: far above any real one, far below what hurts.
const maxText = 1 << 20

// namePattern is what states, ends, steps, answers and arguments are called.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// yamlLine finds the place in an error of the YAML reader, which tells it only in its text.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// reader walks the nodes of one file and collects the problems.
type reader struct {
	file     string
	holds    string // what a file of this kind holds, for people: "table"
	problems problem.List
}

// pair is one key of a mapping with its value.
type pair struct {
	key   Word
	value *yaml.Node
}

// at is the place of a node. The YAML reader knows no place for a few; those are the file's beginning.
func (r *reader) at(n *yaml.Node) problem.Position {
	return problem.Position{File: r.file, Line: max(n.Line, 1), Col: max(n.Column, 1)}
}

// report adds a problem.
func (r *reader) report(at problem.Position, code, what, fix string) {
	r.problems = append(r.problems, problem.Problem{At: at, Severity: problem.Error, Code: code, What: what, Fix: fix})
}

// document is the one document of the text, or nil with a problem.
func (r *reader) document(text []byte) *yaml.Node {
	top := problem.Position{File: r.file, Line: 1, Col: 1}
	if len(text) > maxText {
		r.report(top, "too-large", fmt.Sprintf("the file has %d bytes and at most %d are read", len(text), maxText), "drop what does not belong to it")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	err := decoder.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF), err == nil && len(doc.Content) == 0:
		r.report(top, "empty-file", "the file is empty, and a file of this name holds "+r.holds, "begin it with `machine: NAME`")
		return nil
	case err != nil:
		r.unreadable(err, text)
		return nil
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		r.unreadable(err, text)
	default:
		r.report(r.at(&second), "second-document", "the file holds a second document, and only one is read", "keep one, remove the line `---` and what follows it")
	}
	return doc.Content[0]
}

// unreadable reports an error of the YAML reader at the line that it names.
func (r *reader) unreadable(err error, text []byte) {
	at := problem.Position{File: r.file, Line: 1, Col: 1}
	parts := yamlLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if line, convErr := strconv.Atoi(parts[1]); convErr == nil {
		// The reader counts from 0 where it misses something, and from 1 where it trips over something.
		if strings.HasPrefix(parts[2], "did not find expected") {
			line++
		}
		at.Line = max(1, min(line, 1+bytes.Count(bytes.TrimRight(text, "\r\n"), []byte("\n"))))
	}
	r.report(at, "bad-yaml", "the file is no YAML: "+parts[2], "mend the YAML at or just above this line")
}

// mapping gives the pairs of a mapping whose keys are names, and reports duplicate keys with both places.
// what says what the mapping is, for a person: "an end".
func (r *reader) mapping(n *yaml.Node, what string) ([]pair, bool) {
	if n.Kind != yaml.MappingNode {
		r.report(r.at(n), "wrong-kind", fmt.Sprintf("%s is %s and must be a mapping", what, written(n)), "write `key: value` pairs")
		return nil, false
	}
	first := make(map[string]problem.Position, len(n.Content)/2)
	pairs := make([]pair, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.word(n.Content[i], "a key of "+what)
		if !ok {
			continue
		}
		if at, twice := first[key.Text]; twice {
			r.problems = append(r.problems, problem.Problem{
				At: key.At, Also: at, Severity: problem.Error, Code: "duplicate-key",
				What: fmt.Sprintf("%q is already a key of %s, and only one of the two could count", key.Text, what),
				Fix:  "keep one of the two",
			})
			continue
		}
		first[key.Text] = key.At
		pairs = append(pairs, pair{key: key, value: n.Content[i+1]})
	}
	return pairs, true
}

// fields gives the pairs of a mapping with fixed keys, by key, and reports unknown and missing ones.
func (r *reader) fields(n *yaml.Node, what string, required, optional []string) (map[string]*yaml.Node, bool) {
	pairs, ok := r.mapping(n, what)
	if !ok {
		return nil, false
	}
	known := slices.Concat(required, optional)
	found := make(map[string]*yaml.Node, len(pairs))
	guessed := make(map[string]bool)
	for _, p := range pairs {
		if slices.Contains(known, p.key.Text) {
			found[p.key.Text] = p.value
			continue
		}
		near := nearestUnused(p.key.Text, known, found, pairs)
		guessed[near] = true
		r.report(p.key.At, "unknown-key", fmt.Sprintf("%q is no key of %s", p.key.Text, what), didYouMean(near, known))
	}
	for _, key := range required {
		// A key that is only spelled wrong is one mistake and gets one problem.
		if found[key] == nil && !guessed[key] {
			r.report(r.at(n), "missing-key", fmt.Sprintf("%s has no `%s`", what, key), fmt.Sprintf("add `%s: ...`", key))
		}
	}
	return found, true
}

// nearestUnused is the known key that the author most likely meant, leaving out those already there.
func nearestUnused(word string, known []string, found map[string]*yaml.Node, pairs []pair) string {
	free := slices.DeleteFunc(slices.Clone(known), func(k string) bool {
		return found[k] != nil || slices.ContainsFunc(pairs, func(p pair) bool { return p.key.Text == k })
	})
	return problem.Nearest(word, free)
}

// sequence gives the elements of a list, none when it is no list or an empty one.
func (r *reader) sequence(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case n.Kind != yaml.SequenceNode:
		r.report(r.at(n), "wrong-kind", fmt.Sprintf("%s is %s and must be a list", what, written(n)), "write `[one, two]`")
		return nil
	case len(n.Content) == 0:
		r.report(r.at(n), "empty-list", what+" is an empty list, which says nothing", "name at least one, or remove the key")
		return nil
	}
	return n.Content
}

// text gives a scalar that YAML reads as text.
func (r *reader) text(n *yaml.Node, what string) (Word, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		fix := "write a word"
		if n.Kind == yaml.ScalarNode && n.Value != "" {
			fix = fmt.Sprintf("write another word, or quote it: %q", n.Value)
		}
		r.report(r.at(n), "wrong-kind", fmt.Sprintf("%s is %s and must be text", what, written(n)), fix)
		return Word{}, false
	}
	return Word{Text: n.Value, At: r.at(n)}, true
}

// word gives a scalar that is a name.
func (r *reader) word(n *yaml.Node, what string) (Word, bool) {
	w, ok := r.text(n, what)
	if !ok {
		return Word{}, false
	}
	if !namePattern.MatchString(w.Text) {
		r.report(w.At, "bad-name", fmt.Sprintf("%s is %s, and a name begins with a letter and has only a-z, 0-9 and _", what, quote(w.Text)), "write a name such as lock_cursor, at most 63 characters long")
		return Word{}, false
	}
	return w, true
}

// oneOf gives a scalar that is a word of a closed set.
func (r *reader) oneOf(n *yaml.Node, what string, set []string) (string, bool) {
	w, ok := r.text(n, what)
	if !ok {
		return "", false
	}
	if !slices.Contains(set, w.Text) {
		r.report(w.At, "unknown-word", fmt.Sprintf("%s is %s", what, quote(w.Text)), didYouMean(problem.Nearest(w.Text, set), set))
		return "", false
	}
	return w.Text, true
}

// written names what a person wrote where something else belongs.
func written(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "the alias *" + n.Value + ", which tables do not use,"
	case yaml.ScalarNode, yaml.DocumentNode:
	}
	switch n.ShortTag() {
	case "!!null":
		return "empty"
	case "!!bool", "!!int", "!!float", "!!timestamp":
		return quote(n.Value) + ", which YAML does not read as text,"
	default:
		return quote(n.Value)
	}
}

// quote quotes an author's text and cuts a long one.
func quote(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		return strconv.Quote(string(r[:most])) + "..."
	}
	return strconv.Quote(text)
}

// didYouMean is the fix for a word that is not in a closed set: the nearest one, or all of them.
func didYouMean(near string, known []string) string {
	switch {
	case near != "":
		return fmt.Sprintf("did you mean %q", near)
	case len(known) == 0:
		return "remove it: there is none"
	}
	return "write one of " + strings.Join(known, ", ")
}
