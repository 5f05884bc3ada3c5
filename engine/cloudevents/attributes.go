// SPDX-License-Identifier: Apache-2.0

package cloudevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/bothy/engine/problem"
)

// namespace is that of the version 5 UUIDs made of source and id. It never changes: the same event read
// again gets the same id.
var namespace = uuid.MustParse("5b0c4b9e-6d0f-5c3a-9f57-3f1d2f0e7a11")

// traceparent is how W3C Trace Context writes a version, a trace and a span in it.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// isTrace reports whether text is a traceparent. The log takes the same ones.
func isTrace(text []byte) bool {
	return traceparent.Match(text) && string(text[:2]) != "ff" && len(bytes.Trim(text[3:35], "0")) > 0 && len(bytes.Trim(text[36:52], "0")) > 0
}

// required are the attributes without which there is no event, in the order in which they are missed.
var required = []string{"specversion", "id", "source", "type"}

// optional are the other names that CloudEvents or this package give a meaning.
var optional = []string{"subject", "time", "data", "data_base64", "datacontenttype", "dataschema", "audience", "traceparent"}

// attributes is one event while it is read.
type attributes struct {
	scanner
	known   func(raw []byte) string // turns raw into a string; a repeated text may share memory
	event   Event
	version string
	id      string
	seen    map[string]int // where each name stands
	extra   []string       // names without a place in Event
	payload []byte         // nil while there is none
	encoded bool           // the payload is data_base64
	begin   int            // where the opening brace stands
}

// read walks over the text of one event, from its opening brace to the end of the text.
func (a *attributes) read() *fault {
	if a.peek() != '{' {
		return a.unexpected("the opening brace of an event")
	}
	a.begin = a.pos
	a.pos++
	for more := a.peek() != '}'; more; {
		if f := a.pair(); f != nil {
			return f
		}
		if more = a.peek() != '}'; more {
			if !a.take(',') {
				return a.unexpected(`"," or "}" after the value`)
			}
		}
	}
	a.pos++
	if a.peek(); a.pos < len(a.text) {
		return bad(a.pos, "bad-json", found(a.text[a.pos:])+" follows the event on its line", "write each event on a line of its own")
	}
	return a.finish()
}

// pair takes one name and its value.
func (a *attributes) pair() *fault {
	if a.peek() != '"' {
		return a.unexpected("the name of an attribute in quotes")
	}
	at := a.pos
	raw, f := a.str()
	if f != nil {
		return f
	}
	name := a.known(raw)
	if !a.take(':') {
		return a.unexpected(`":" after ` + quote(raw))
	}
	if f := checkName(name, at); f != nil {
		return f
	}
	if first, twice := a.seen[name]; twice {
		return &fault{at: at, code: "duplicate-attribute", what: name + " stands twice in this event", fix: "keep one of the two", also: first}
	}
	a.seen[name] = at
	a.peek()
	from := a.pos
	if f := a.value(1); f != nil {
		return f
	}
	value := a.text[from:a.pos]
	if string(value) == "null" {
		return nil
	}
	f = a.set(name, value)
	if f != nil && f.at == 0 {
		f.at = from
	}
	return f
}

// checkName holds names to the letters that CloudEvents allows.
func checkName(name string, at int) *fault {
	if name == "data_base64" {
		return nil
	}
	ok := name != ""
	for i := 0; ok && i < len(name); i++ {
		ok = isDigit(name[i]) || (name[i] >= 'a' && name[i] <= 'z')
	}
	if ok {
		return nil
	}
	fix := "write it with the letters a to z and digits only"
	if near := problem.Nearest(name, append(slices.Clip(required), optional...)); near != "" {
		fix = "did you mean " + near + "?"
	}
	return bad(at, "bad-name", quote([]byte(name))+" is no name of a CloudEvents attribute", fix)
}

// set takes the value of one attribute, which is not null.
func (a *attributes) set(name string, value []byte) *fault {
	switch name {
	case "data", "data_base64":
		return a.data(name, value)
	case "audience":
		return a.audience(value)
	}
	isText := value[0] == '"'
	text := value
	if isText {
		text = value[1 : len(value)-1]
	}
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema":
		if !isText {
			return wrong(name, value, "is not a string", "put it in quotes")
		}
		if len(text) == 0 {
			return wrong(name, value, "is empty", "write one, or leave it out where it is optional")
		}
	}
	switch name {
	case "specversion":
		if a.version = string(text); a.version != "1.0" {
			return wrong(name, value, "is not the version that is read here", `write "1.0"`)
		}
	case "id":
		a.id = unquote(text)
	case "source":
		a.event.Resource = a.known(text)
	case "type":
		a.event.Type = a.known(text)
	case "subject":
		a.event.ResourceID = unquote(text)
	case "time":
		t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(unquote(text)))
		if err != nil {
			return wrong(name, value, "is no time of RFC 3339", "write it like 2026-03-01T09:30:00Z")
		}
		a.event.Time = t
	case "datacontenttype":
		if !saysJSON(a.known(text)) {
			a.extra = append(a.extra, name)
		}
	case "traceparent":
		if isText && isTrace(text) {
			a.event.Traceparent = string(text)
			return nil
		}
		fallthrough
	default:
		if !isText && !isSimple(value) {
			return wrong(name, value, "is no value of an attribute", "write a string, a whole number or a boolean, or move it into data")
		}
		a.extra = append(a.extra, name)
	}
	return nil
}

// wrong is a fault of an attribute's value; pair fills in where it stands.
func wrong(name string, value []byte, why, fix string) *fault {
	return &fault{code: "bad-attribute", what: fmt.Sprintf("%s %s %s", name, show(value), why), fix: fix}
}

// show is a value as a message quotes it: a string without doubled quotes, a long value cut.
func show(value []byte) string {
	if value[0] == '"' {
		return quote([]byte(unquote(value[1 : len(value)-1])))
	}
	if q := quote(value); strings.HasSuffix(q, `..."`) {
		return q
	}
	return string(value)
}

// isSimple reports whether a value that is no string has one of the types of a context attribute: a
// boolean, or a whole number of 32 bits.
func isSimple(value []byte) bool {
	if value[0] == 't' || value[0] == 'f' {
		return true
	}
	_, err := strconv.ParseInt(string(value), 10, 32)
	return err == nil
}

// saysJSON reports whether a media type, parameters aside, is one of JSON.
func saysJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// data takes the payload, of which there may be only one.
func (a *attributes) data(name string, value []byte) *fault {
	if a.payload != nil {
		return &fault{code: "duplicate-attribute", what: "the event has both data and data_base64", fix: "keep one of the two", also: min(a.seen["data"], a.seen["data_base64"])}
	}
	a.payload = value
	if name == "data" {
		return nil
	}
	if value[0] != '"' {
		return wrong(name, value, "is not a string", "write the bytes as base64 in quotes")
	}
	a.encoded = true
	if bytes.ContainsAny(value, `\`) {
		a.payload = []byte(`"` + unquote(value[1:len(value)-1]) + `"`) // "\/" is a way to write a slash
	}
	text := a.payload[1 : len(a.payload)-1]
	decoded := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	if _, err := base64.StdEncoding.Strict().Decode(decoded, text); err != nil || bytes.ContainsAny(text, "\r\n") {
		return wrong(name, value, "is no base64", "write it with the letters A-Z a-z 0-9 + / and = at the end")
	}
	return nil
}

// audience takes the extension audience, a string or an array of strings.
func (a *attributes) audience(value []byte) *fault {
	const fix = "write the names with commas between them, or as an array of strings"
	var names []string
	switch value[0] {
	case '"':
		if text := unquote(value[1 : len(value)-1]); strings.TrimSpace(text) != "" {
			for name := range strings.SplitSeq(text, ",") {
				names = append(names, strings.TrimSpace(name))
			}
		}
	case '[':
		s := scanner{text: value, pos: 1}
		for s.peek() != ']' {
			if s.peek() != '"' {
				return wrong("audience", value, "holds something that is not a string", fix)
			}
			raw, f := s.str()
			if f != nil {
				return f
			}
			names = append(names, a.known(raw))
			if s.peek() == ',' {
				s.pos++
			}
		}
	default:
		return wrong("audience", value, "is not a string", fix)
	}
	if slices.Contains(names, "") {
		return wrong("audience", value, "holds an empty name", "leave it out")
	}
	a.event.Audience = names
	return nil
}

// finish checks what is missing and gives the event its id and payload.
func (a *attributes) finish() *fault {
	var missing []string
	for i, value := range [...]string{a.version, a.id, a.event.Resource, a.event.Type} {
		if value == "" {
			missing = append(missing, required[i])
		}
	}
	if len(missing) > 0 {
		return bad(a.begin, "missing-attribute", "missing "+strings.Join(missing, ", "), "give every event specversion, id, source and type")
	}
	a.event.ID = uuidOf(a.event.Resource, a.id)
	switch {
	case a.payload == nil:
		a.event.Payload = json.RawMessage(`{}`)
	case a.encoded:
		a.event.Payload = slices.Concat([]byte(`{"data_base64": `), a.payload, []byte(`}`))
	default:
		a.event.Payload = bytes.Clone(a.payload)
	}
	return nil
}

// uuidOf is the id itself when it is a UUID in its usual form of 36 characters, else one made of the pair.
// Neither half can hold the code point zero, so no two pairs are joined to the same text.
func uuidOf(source, id string) string {
	if len(id) == 36 {
		if parsed, err := uuid.Parse(id); err == nil {
			return parsed.String()
		}
	}
	return uuid.NewSHA1(namespace, []byte(source+"\x00"+id)).String()
}
