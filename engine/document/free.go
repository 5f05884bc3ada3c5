// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"

	"gopkg.in/yaml.v3"
)

// Value is any YAML value, as JSON: a scalar, a list or a mapping. A number keeps the digits that its
// author wrote, a timestamp is a text, and ${NAME} stays as written. A field that is absent is empty.
type Value json.RawMessage

// MarshalJSON gives the JSON itself, and null for an absent value.
func (v Value) MarshalJSON() ([]byte, error) { return json.RawMessage(v).MarshalJSON() }

// String is the JSON.
func (v Value) String() string { return string(v) }

// maxCopied bounds the JSON that free values come to: an alias repeats the bytes of its anchor.
const maxCopied = 16 << 20

var (
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	numberLike = regexp.MustCompile(`^[+-]?(\.?[0-9][0-9_]*\.?[0-9_]*([eE][+-]?[0-9_]+)?|0[xXoObB][0-9a-fA-F_]+|\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
	switchLike = regexp.MustCompile(`^(?i:yes|no|on|off|true|false)$`)
)

// free reads a value of any kind as JSON.
func (r *reader) free(n *yaml.Node, path string, v reflect.Value) {
	w := freeWriter{reader: r, path: path, open: map[*yaml.Node]bool{}}
	if w.write(n); !r.bad[path] {
		v.SetBytes(w.out.Bytes())
	}
}

// freeWriter writes one value as JSON. The first thing that is wrong with it makes the whole value bad.
type freeWriter struct {
	*reader

	path string
	open map[*yaml.Node]bool // the lists and mappings around the node
	out  bytes.Buffer
}

func (w *freeWriter) write(used *yaml.Node) {
	n := behind(used)
	switch {
	case w.spent(used) || w.odd[n]:
		w.bad[w.path] = true
	case w.open[n]:
		w.refuse(w.path, used, "bad-yaml", "an anchor holds an alias to itself", "remove the alias")
	case n.Style&yaml.TaggedStyle != 0:
		w.tagged(used, n, w.path)
	case n.Kind == yaml.MappingNode:
		w.open[n] = true
		w.mapping(n)
		delete(w.open, n)
	case n.Kind == yaml.SequenceNode:
		w.open[n] = true
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.write(item)
		}
		w.out.WriteByte(']')
		delete(w.open, n)
	default:
		w.scalar(used, n)
	}
}

func (w *freeWriter) mapping(n *yaml.Node) {
	w.out.WriteByte('{')
	for i, e := range w.entries(n) {
		if why, fix := keyTrouble(e.key); why != "" {
			w.refuse(w.path, e.key, "bad-key", keyName(e.key.Value)+why, fix)
			continue
		}
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.text(e.key, e.key.Value)
		w.out.WriteByte(':')
		w.write(e.value)
	}
	w.out.WriteByte('}')
}

func (w *freeWriter) scalar(used, n *yaml.Node) {
	kind, why, fix := plain(n)
	switch {
	case why != "":
		w.refuse(w.path, used, "bad-value", fmt.Sprintf("%s holds %s%s", w.path, shown(n.Value), why), fix)
	case kind == "text":
		w.text(used, n.Value)
	case kind == "null":
		w.out.WriteString("null")
	default:
		w.copy(used, []byte(n.Value))
	}
}

func (w *freeWriter) text(n *yaml.Node, text string) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil { // a text can always be written
		w.refuse(w.path, n, "bad-value", fmt.Sprintf("%s cannot be written as JSON: %v", w.path, err), "write another text")
		return
	}
	w.copy(n, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func (w *freeWriter) copy(n *yaml.Node, text []byte) {
	before := w.copied
	if w.copied += len(text); w.copied <= maxCopied {
		w.out.Write(text)
		return
	}
	w.bad[w.path] = true
	if before <= maxCopied {
		w.refuse(w.path, n, "too-many-aliases", fmt.Sprintf("with its aliases written out, the file holds more than %d bytes", maxCopied),
			"write fewer aliases, or shorter texts behind them")
	}
}

// plain says what a scalar is to every YAML reader: text, null, number or switch. Where readers differ it
// says why, and what to write.
func plain(n *yaml.Node) (kind, why, fix string) {
	text := n.Value
	inQuotes := "put it in quotes if it is a text"
	switch {
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return "text", "", ""
	case isNull(n):
		return "null", "", ""
	case text == "true" || text == "false":
		return "switch", "", ""
	case jsonNumber.MatchString(text):
		return "number", "", ""
	case switchLike.MatchString(text):
		return "", ", which some readers take for true or false, and others for a text", "write true or false, or " + inQuotes
	case numberLike.MatchString(text):
		if why = spelling(text); why == "" {
			why = ", which is no number to JSON"
		}
		return "", why, "write the number in plain digits, or " + inQuotes
	default:
		return "text", "", ""
	}
}

// keyTrouble says why a key of the author's own is not one text to every reader.
func keyTrouble(key *yaml.Node) (why, fix string) {
	kind, _, _ := plain(key)
	switch {
	case key.Style&yaml.TaggedStyle != 0:
		return " has a tag, and tags change what a text means", "remove the tag"
	case kind != "text":
		return " is no text to every reader of YAML", "put it in quotes"
	default:
		return "", ""
	}
}
