// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
)

// Reference is a Markdown page with every key of the grammar: a table per section.
func (g *Grammar[T]) Reference() []byte {
	s := g.compiled()
	p := page{shape: s}
	p.line("# %s: every key", s.name)
	p.line("")
	p.line("<!-- Written by `go generate ./...` from the declarations of the keys. Do not edit it. -->")
	p.line("")
	if s.about != "" {
		p.line("%s", s.about)
		p.line("")
	}
	p.line("%s", reading)
	p.section("", s.root, "")
	return p.out.Bytes()
}

const reading = `A key that is not in a table is refused, and so is a key without a value. In any value, ` + "`${NAME}`" + ` stands for
the environment variable NAME; it is the only expansion.

- **text**: taken as written, with or without quotes.
- **secret**: a text that no message and no command shows.
- **number**: a whole number in plain digits, without quotes, sign, underscore or leading zero.
- **duration**: digits with a unit: ` + "`500ms`, `5s`, `1m30s`, `1h`" + `.
- **switch**: ` + "`true` or `false`" + `, without quotes.
- **any value**: a text, a number, a list, a mapping, or null.`

type page struct {
	*shape

	out bytes.Buffer
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

// section writes the table of a struct, and then those of the structs below it.
func (p *page) section(path string, t reflect.Type, doc string) {
	title := "The file"
	if path != "" {
		title = "`" + path + "`"
	}
	p.line("")
	p.line("## %s", title)
	if doc != "" {
		p.line("")
		p.line("%s", doc)
	}
	p.line("")
	p.line("| Key | Type | Default | Range | Unit | Since | Meaning |")
	p.line("|---|---|---|---|---|---|---|")
	fields := fieldsOf(t)
	for _, f := range fields {
		p.line("| `%s` | %s | %s | %s | %s | %s | %s |", f.key, p.typeOf(f), defaultOf(f), limitsOf(f), f.unit, f.since, cell(f.doc))
	}
	for i := range fields {
		if inner, suffix := fields[i].below(); inner != nil {
			p.section(join(path, fields[i].key)+suffix, inner, fields[i].doc)
		}
	}
}

func (p *page) typeOf(f field) string {
	words := strings.Fields(f.limit("oneof"))
	for i := range words {
		words[i] = "`" + words[i] + "`"
	}
	switch f.kind {
	case kindText:
		if len(words) > 0 {
			return alternatives(words)
		}
		return "text"
	case kindSecret:
		return "secret"
	case kindCount:
		return "number"
	case kindDuration:
		return "duration"
	case kindSwitch:
		return "switch"
	case kindFree:
		return "any value"
	case kindList:
		return p.orWord(f, "list of "+p.plural(*f.entry))
	case kindMap:
		return "mapping of names to " + p.plural(*f.entry)
	default:
		return p.orWord(f, "mapping")
	}
}

func (p *page) orWord(f field, other string) string {
	if f.word == "" {
		return other
	}
	return "`" + f.word + "`, or a " + other
}

func (p *page) plural(f field) string {
	switch name := p.typeOf(f); {
	case f.limit("oneof") != "":
		return name
	case f.kind == kindList:
		return "lists" + strings.TrimPrefix(name, "list")
	case f.kind == kindMap:
		return "mappings" + strings.TrimPrefix(name, "mapping")
	case f.kind == kindSwitch:
		return "switches"
	default:
		return name + "s"
	}
}

func defaultOf(f field) string {
	switch {
	case f.required:
		return "required"
	case f.preset != "":
		return "`" + f.preset + "`"
	case f.inherit != "":
		return "`" + f.inherit + "`"
	default:
		return ""
	}
}

func limitsOf(f field) string {
	low, high := f.limit("min"), f.limit("max")
	switch {
	case f.limit("eq") != "":
		return f.limit("eq")
	case (f.kind == kindList || f.kind == kindMap) && high != "" && low != "":
		return low + " to " + high + " entries"
	case (f.kind == kindList || f.kind == kindMap) && high != "":
		return "at most " + high + " entries"
	case low != "" && high != "":
		return low + " to " + high
	default:
		return ""
	}
}

// cell keeps a text inside its cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
