// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// source turns the text into the mapping at its top, or reports why it cannot.
func (r *reader) source(text []byte) *yaml.Node {
	start := problem.Position{File: r.file, Line: 1, Col: 1}
	if len(text) > MaxSize {
		r.report(start, "file-too-large", fmt.Sprintf("the file is larger than %d bytes", MaxSize), "check that this is the right file")
		return nil
	}
	if marks(text) > maxMarks {
		r.report(start, "file-too-large", fmt.Sprintf("the file may hold more than %d values: so many lines, commas and colons are in it", maxMarks), "check that this is the right file")
		return nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	r.text, r.end = text, endOf(text)
	if !r.characters(text) {
		return nil
	}
	text = undirected(text)
	document, second, err := parse(text)
	if err != nil {
		r.broken(text, err)
		return nil
	}
	if document == nil || len(document.Content) == 0 || isNull(document.Content[0]) {
		r.report(start, "empty-file", "the file holds no value", "write "+r.begin)
		return nil
	}
	if second != nil {
		r.report(r.at(second), "second-document", "a second document begins here, and only one is read",
			"move what follows --- into a file of its own, or remove the line")
	}
	top := document.Content[0]
	if bytes.IndexByte(text, '&') >= 0 {
		r.veil(top, "")
	}
	if !isASCII(text) && !r.oddBlanks(text, top) {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		r.report(r.at(top), "wrong-kind", "the file is "+r.kindOf(top, "")+", and it takes a mapping", "begin with "+r.first())
		return nil
	}
	return top
}

// values counts the values that stand in a node, without what its aliases repeat.
func values(n *yaml.Node) int {
	count := len(n.Content)
	if n.Kind == yaml.MappingNode {
		count /= 2
	}
	for _, child := range n.Content {
		if len(child.Content) > 0 {
			count += values(child)
		}
	}
	return count
}

// marks counts the characters with which a value can begin, so at least the values of a text. It is far
// cheaper than the nodes that they would become.
func marks(text []byte) int {
	count := 1
	for _, c := range text {
		switch c {
		case '\n', '\r', ',', ':', '[', '{', '?':
			count++
		}
	}
	return count + bytes.Count(text, []byte("- "))
}

func isASCII(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// endOf is the place behind the last character of a text.
func endOf(text []byte) mark {
	lines := 1 + bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) - bytes.Count(text, []byte("\r\n"))
	return mark{line: lines, col: 1 + utf8.RuneCount(text[1+bytes.LastIndexAny(text, "\r\n"):])}
}

// first is an example of the first key of the grammar.
func (s *shape) first() string {
	for _, f := range fieldsOf(s.root) {
		return s.example(f)
	}
	return s.begin
}

// parse reads the first document of a text, and the node of a second one when there is one. The parser is
// given no time to surprise: a panic in it is an error like any other.
func parse(text []byte) (document, second *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			document, second, err = nil, nil, fmt.Errorf("yaml: the parser gave up: %v", p)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	document = new(yaml.Node)
	if err := decoder.Decode(document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	for {
		second = new(yaml.Node)
		err = decoder.Decode(second)
		switch {
		case errors.Is(err, io.EOF):
			return document, nil, nil
		case err != nil:
			return nil, nil, err
		case len(second.Content) > 0 && (!isNull(second.Content[0]) || second.Content[0].Value != ""):
			return document, second, nil
		}
		// nothing stands behind this ---
	}
}

// directive is the line with which a file says that it is YAML 1.2, which the parser does not know.
var directive = regexp.MustCompile(`^(?:[ \t]*(?:#[^\r\n]*)?\r?\n)*%YAML[ \t]+1\.[0-9]+[ \t]*(?:#[^\r\n]*)?(?:\r?\n|$)`)

// undirected is a text with that line as a comment: what is read here means the same in every YAML 1.
func undirected(text []byte) []byte {
	at := directive.Find(text)
	if at == nil {
		return text
	}
	text = slices.Clone(text)
	text[bytes.LastIndexByte(text[:len(at)], '%')] = '#'
	return text
}
