// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"strings"

	"example.com/bothy/engine/problem"
)

// nearest is the word that was most likely meant, or "". A long text was meant as none of them, and comparing
// it would take long.
func nearest(text string, words []string) string {
	const most = 100
	if len(text) > most {
		return ""
	}
	return problem.Nearest(text, words)
}

// wordFix lists the allowed words, the nearest first.
func wordFix(f field, text string) string {
	words := strings.Fields(f.limit("oneof"))
	list := "write " + alternatives(words)
	switch {
	case f.word != "" && f.kind == kindSection:
		// A word in place of a mapping; its keys are the other way to write it.
		keys := strings.Split(keysOf(f.typ), ", ")
		words = append([]string{f.word}, keys...)
		list = fmt.Sprintf("write the word %s, or a mapping with one of %s", f.word, strings.Join(keys, ", "))
	case f.word != "":
		return fmt.Sprintf("write the word %s, or a list", f.word)
	}
	near := nearest(text, words)
	if len(text) < 3 && !strings.EqualFold(near, text) {
		near = "" // too short to guess: no is one slip away from on, and means the opposite
	}
	switch {
	case near != "" && near == f.word:
		return fmt.Sprintf("did you mean %q? %s", near, list)
	case near != "" && f.word != "":
		return fmt.Sprintf("write a mapping, such as {%s: ...}; or %s", near, strings.TrimPrefix(list, "write "))
	case near != "" && near != text:
		return fmt.Sprintf("did you mean %q? %s", near, list)
	default:
		return list
	}
}

func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// example shows how a field may be written, in one line. An entry of a list has no key.
func (s *shape) example(f field) string {
	value := s.exampleValue(f)
	if f.key == "" {
		return value
	}
	return f.key + ": " + value
}

// advice is the example, and the other way to write the field where there is one.
func (s *shape) advice(f field) string {
	switch {
	case f.word == "":
		return s.example(f)
	case f.kind == kindList:
		return s.example(f) + ", or a list"
	default:
		return s.example(f) + ", or a mapping with one of " + keysOf(f.typ)
	}
}

func (s *shape) exampleValue(f field) string {
	switch {
	case f.limit("eq") != "":
		return f.limit("eq")
	case f.word != "":
		return f.word
	case f.preset != "":
		return f.preset
	case f.limit("oneof") != "":
		return alternatives(strings.Fields(f.limit("oneof")))
	}
	for rule := range strings.SplitSeq(f.validate, ",") {
		if format, ok := s.formats[rule]; ok {
			return format.Example
		}
	}
	switch f.kind { // a text and a switch are answered above
	case kindSection:
		return s.exampleSection(f.typ)
	case kindList:
		return "[" + s.exampleValue(*f.entry) + "]"
	case kindMap:
		return "{" + s.exampleKey(f) + ": " + s.exampleValue(*f.entry) + "}"
	case kindFree:
		return "null"
	case kindDuration:
		return "5s"
	default:
		return "100"
	}
}

func (s *shape) exampleKey(f field) string {
	if format, ok := s.formats[f.keyRule]; ok {
		return format.Example
	}
	return "name"
}

// exampleSection writes the keys that a section must have, or the first that has a default.
func (s *shape) exampleSection(t reflect.Type) string {
	var parts []string
	fields := fieldsOf(t)
	for _, f := range fields {
		if f.required {
			parts = append(parts, s.example(f))
		}
	}
	for i := 0; i < len(fields) && len(parts) == 0; i++ {
		if fields[i].preset != "" || i == len(fields)-1 {
			parts = append(parts, s.example(fields[i]))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// removal is the other way to mend a key without a value.
func removal(f field) string {
	switch {
	case f.key == "":
		return ", or remove the entry"
	case f.required:
		return ""
	default:
		return ", or remove the key"
	}
}
