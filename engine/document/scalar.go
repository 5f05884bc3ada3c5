// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

var (
	variable  = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	durations = regexp.MustCompile(`^[+-]?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$`)
	decimal   = regexp.MustCompile(`^\d+(\.\d+)?$`)
	digits    = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
)

// expand gives the text of a scalar with each ${NAME} replaced. It is the only expansion: it happens after
// parsing, so that a value cannot inject YAML, and what comes out is not looked at again. It is false when
// a variable has no value; the text then stays as written.
func (r *reader) expand(used, n *yaml.Node, path string) (string, bool) {
	if !strings.Contains(n.Value, "${") {
		return n.Value, true
	}
	m := r.marks[path]
	known := true
	text := variable.ReplaceAllStringFunc(n.Value, func(reference string) string {
		m.variable = true
		name := reference[2 : len(reference)-1]
		if r.lookup != nil {
			value, set := r.lookup(name)
			switch {
			case set && utf8.ValidString(value):
				return value
			case set:
				r.refuse(path, used, "bad-encoding", fmt.Sprintf("%s names the variable %s, which holds bytes that are not UTF-8", path, name),
					"set "+name+" to a text in UTF-8")
				known = false
				return reference
			}
			if r.preview {
				r.warn(used, "unset-variable", fmt.Sprintf("%s names the variable %s, which is not set here, so its value is not checked", path, name))
			} else {
				r.refuse(path, used, "unset-variable", fmt.Sprintf("%s names the variable %s, which is not set", path, name),
					"set "+name+" in the environment of this command")
			}
		} else {
			r.warn(used, "unset-variable", fmt.Sprintf("%s names the variable %s, and no variable is looked up here, so its value is not checked", path, name))
		}
		known = false
		return reference
	})
	if !known {
		m.unknown, text = true, n.Value
	} else if strings.Contains(variable.ReplaceAllString(n.Value, ""), "${") {
		r.warn(used, "odd-variable", path+" holds ${ without a plain name and }, and that stays as written")
	}
	r.note(path, m)
	return text, known
}

// warn adds a warning at a node.
func (r *reader) warn(n *yaml.Node, code, what string) {
	r.add(problem.Problem{At: r.at(n), Severity: problem.Warning, Code: code, What: what})
}

// scalar reads one text into v.
func (r *reader) scalar(used, n *yaml.Node, path string, v reflect.Value, f *field) {
	text, known := r.expand(used, n, path)
	if !known {
		if f.kind == kindText || f.kind == kindSecret {
			v.SetString(text)
		}
		return
	}
	// Quotes make a text of a number, except around a variable, which needs them inside { }.
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 && !r.marks[path].variable
	is := func() string { return path + " is " + r.Quoted(path) }
	mend := func(fix string) string {
		if r.marks[path].secret {
			return "write " + r.advice(*f) // the other may repeat the text
		}
		return fix
	}
	switch f.kind { //nolint:exhaustive // the others are no scalars
	case kindCount:
		if why, fix, ok := countTrouble(text, quoted, *f); !ok {
			r.refuse(path, used, "bad-count", is()+why, mend(fix))
			return
		}
	case kindDuration:
		if why, fix, ok := durationTrouble(text, *f); !ok {
			r.refuse(path, used, "bad-duration", is()+why, mend(fix))
			return
		}
	case kindSwitch:
		if text != "true" && text != "false" || quoted {
			r.refuse(path, used, "bad-switch", is(), "write true or false, without quotes")
			return
		}
	}
	set(v, f.kind, text)
}

// set stores a text that was checked before.
func set(v reflect.Value, k kind, text string) {
	switch k { //nolint:exhaustive // the others are no scalars
	case kindText, kindSecret:
		v.SetString(text)
	case kindCount:
		n, _ := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
	case kindDuration:
		d, _ := time.ParseDuration(text)
		v.SetInt(int64(d))
	case kindSwitch:
		v.SetBool(text == "true")
	}
}

// countTrouble says why a text is no count: only plain decimal digits are, since YAML readers disagree
// about all other spellings of a number.
func countTrouble(text string, quoted bool, f field) (why, fix string, ok bool) {
	fix = "write a whole number" + span(f)
	switch {
	case quoted && digits.MatchString(text):
		return ", in quotes, and a number has none", "write " + text + ", without quotes", false
	case !digits.MatchString(text):
		return spelling(text), fix, false
	}
	if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		return ", which is out of range", fix, false
	}
	return "", "", true
}

// spelling names what is odd about a number, where it is a number at all.
func spelling(text string) string {
	body := strings.TrimLeft(text, "+-")
	lower := strings.ToLower(body)
	switch {
	case body == "" || body[0] < '0' || body[0] > '9':
		return ""
	case body != text && digits.MatchString(body):
		return ", with a sign"
	case strings.HasPrefix(lower, "0x") || strings.HasPrefix(lower, "0o") || strings.HasPrefix(lower, "0b"):
		return ", in another base than ten"
	case strings.Contains(body, "_"):
		return ", with an underscore"
	case len(body) > 1 && body[0] == '0' && strings.Trim(body, "0123456789") == "":
		return ", with a leading zero, which some readers take for base eight"
	case strings.Trim(body, "0123456789") == "":
		return ""
	case strings.Contains(lower, "e") && strings.Trim(lower, "0123456789.e+-") == "":
		return ", with an exponent"
	case strings.Contains(body, ".") && strings.Trim(body, "0123456789.") == "":
		return ", with a fraction"
	default:
		return ""
	}
}

// durationTrouble says why a text is no duration. The range is checked later, with all other ranges.
func durationTrouble(text string, f field) (why, fix string, ok bool) {
	fix = "write a duration" + span(f) + ", such as " + f.presetOr("5s")
	tight := strings.Join(strings.Fields(text), "")
	bare, isDays := strings.CutSuffix(tight, "d")
	switch {
	case durations.MatchString(text):
		if _, err := time.ParseDuration(text); err != nil {
			return ", which is out of range", fix, false
		}
		return "", "", true
	case decimal.MatchString(text) && strings.Trim(text, "0.") != "":
		return ", without a unit", "write " + text + "s if you mean seconds", false
	case decimal.MatchString(text):
		return ", without a unit", fix, false
	case durations.MatchString(tight):
		return ", with a blank in it", "write " + tight, false
	case isDays && decimal.MatchString(bare):
		return ", and d is not a unit of time", fix + "; a day is 24h", false
	default:
		return "", fix + "; the units are ms, s, m and h", false
	}
}

// span is the allowed range in words, with a blank before it.
func span(f field) string {
	low, high := f.limit("min"), f.limit("max")
	switch {
	case f.limit("eq") != "":
		return ": " + f.limit("eq")
	case low != "" && high != "":
		return " from " + low + " to " + high
	default:
		return ""
	}
}

func (f field) presetOr(text string) string {
	if f.preset != "" {
		return f.preset
	}
	return text
}
