// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// How much one file of cases may hold.
const (
	maxCases    = 2000
	maxCaseName = 200 // characters
)

// none is how a case says that an end has no failure or no log.
const none = "none"

// cases is a file of cases as its author wrote it: what the steps of a table answer, and what must come of it.
type cases struct {
	at      problem.Position // of the list
	machine Word
	list    []testCase
}

// testCase is one case. What it does not state is not compared.
type testCase struct {
	name       Word
	answers    []Word          // one after the other
	byState    map[string]Word // the same, by state; nil when answers are a list
	breaks     breakOff
	commit     string // cancelled or error when the commit fails
	wants      []want
	effects    []effect
	hasEffects bool
	log        *Log // with a message
}

// breakOff is where a step breaks off, and how.
type breakOff struct {
	how   string
	state Word
}

// want is one word that a case expects of its end.
type want struct {
	key  string
	word Word
}

// effect is one step that a case expects to complete. with is nil when its arguments are not compared.
type effect struct {
	step Word
	with map[string][]string
}

// caseKeys are the keys of a case that expect one word of the end, with the words that they may have; nil
// for any name.
var caseKeys = []struct {
	key string
	set []string
}{
	{"end", nil}, {"transaction", transactions}, {"next", nexts}, {"edge", edges}, {"failure", nil}, {"log", append(slices.Clone(levels), none)},
}

// parseCases reads a file of cases and reports everything that is wrong with its grammar.
func parseCases(file string, text []byte) (*cases, problem.List) {
	r := &reader{file: file, holds: "cases"}
	c := &cases{at: problem.Position{File: file, Line: 1, Col: 1}}
	if n := r.document(text); n != nil {
		r.cases(n, c)
	}
	r.problems.Sort()
	return c, r.problems
}

func (r *reader) cases(n *yaml.Node, c *cases) {
	fields, ok := r.fields(n, "a file of cases", []string{"machine", "cases"}, nil)
	if !ok {
		return
	}
	if v := fields["machine"]; v != nil {
		c.machine, _ = r.word(v, "machine")
	}
	if v := fields["cases"]; v != nil {
		c.at = r.at(v)
		rows := r.sequence(v, "cases")
		named := make(map[string]problem.Position)
		for _, row := range r.cut(rows, "cases", maxCases) {
			if one, ok := r.testCase(row, named); ok {
				c.list = append(c.list, one)
			}
		}
	}
}

// testCase reads one case. named are the names of those before it.
func (r *reader) testCase(n *yaml.Node, named map[string]problem.Position) (testCase, bool) {
	before := len(r.problems)
	one := testCase{}
	optional := []string{"breaks", "commit", "effects"}
	for _, k := range caseKeys[1:] {
		optional = append(optional, k.key)
	}
	fields, ok := r.fields(n, "a case", []string{"name", "answers", "end"}, optional)
	if !ok {
		return one, false
	}
	if v := fields["name"]; v != nil {
		one.name = r.caseName(v, named)
	}
	if v := fields["answers"]; v != nil {
		r.answers(v, &one)
	}
	if v := fields["breaks"]; v != nil {
		one.breaks = r.breaks(v)
	}
	if v := fields["commit"]; v != nil {
		one.commit, _ = r.oneOf(v, "commit of a case", []string{answerCancelled, answerError})
		if fields["breaks"] != nil {
			r.report(r.at(v), "bad-case", "a case has a step that breaks off and a commit that fails, and a step that broke off is never committed", "remove one of breaks and commit")
		}
	}
	for _, k := range caseKeys {
		if v := fields[k.key]; v != nil {
			r.want(v, k.key, k.set, &one)
		}
	}
	if v := fields["effects"]; v != nil {
		one.hasEffects = true
		one.effects = r.effects(v)
	}
	return one, len(r.problems) == before
}

// caseName reads the name of a case: one line that no other case of the file has.
func (r *reader) caseName(n *yaml.Node, named map[string]problem.Position) Word {
	w, ok := r.text(n, "name of a case")
	switch {
	case !ok:
	case strings.TrimSpace(w.Text) == "" || strings.ContainsAny(w.Text, "\r\n") || len([]rune(w.Text)) > maxCaseName:
		r.report(w.At, "bad-name", fmt.Sprintf("name of a case is %s, and a name is one line of at most %d characters", quote(w.Text), maxCaseName), "write in a few words what happens")
	case named[w.Text].Line > 0:
		r.problems = append(r.problems, problem.Problem{
			At: w.At, Also: named[w.Text], Severity: problem.Error, Code: "duplicate-case",
			What: fmt.Sprintf("two cases are named %s, so a report could not say which one failed", quote(w.Text)), Fix: "give each case a name of its own",
		})
	default:
		named[w.Text] = w.At
	}
	return w
}

// answers reads what the steps answer: one word after the other, or a word for each state.
func (r *reader) answers(n *yaml.Node, one *testCase) {
	if n.Kind == yaml.MappingNode {
		one.byState = make(map[string]Word)
		pairs, _ := r.mapping(n, "answers of a case")
		for _, p := range pairs {
			if w, ok := r.word(p.value, "answer of state "+p.key.Text); ok {
				one.answers = append(one.answers, p.key)
				one.byState[p.key.Text] = w
			}
		}
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.report(r.at(n), "wrong-kind", fmt.Sprintf("answers of a case is %s and must be a list or a mapping", written(n)), "write `[answer, ...]`, or `{state: answer, ...}`")
		return
	}
	for _, element := range r.cut(n.Content, "answers of a case", maxStates) {
		if w, ok := r.word(element, "an answer of a case"); ok {
			one.answers = append(one.answers, w)
		}
	}
}

// breaks reads where a step breaks off: `error at STATE` or `cancelled at STATE`.
func (r *reader) breaks(n *yaml.Node) breakOff {
	w, ok := r.text(n, "breaks of a case")
	if !ok {
		return breakOff{}
	}
	how, state, found := strings.Cut(w.Text, " at ")
	if !found || (how != answerCancelled && how != answerError) || !namePattern.MatchString(state) {
		r.report(w.At, "bad-case", fmt.Sprintf("breaks of a case is %s", quote(w.Text)), "write `error at STATE` or `cancelled at STATE`")
		return breakOff{}
	}
	return breakOff{how, Word{Text: state, At: w.At}}
}

// want reads one word that a case expects of its end. A log may be given whole, with its message.
func (r *reader) want(n *yaml.Node, key string, set []string, one *testCase) {
	what := key + " of a case"
	if key == "log" && n.Kind == yaml.MappingNode {
		if one.log = r.log(n, what); one.log != nil {
			one.wants = append(one.wants, want{key, Word{Text: string(one.log.Level), At: r.at(n)}})
		}
		return
	}
	if set == nil {
		if w, ok := r.word(n, what); ok {
			one.wants = append(one.wants, want{key, w})
		}
		return
	}
	if word, ok := r.oneOf(n, what, set); ok {
		one.wants = append(one.wants, want{key, Word{Text: word, At: r.at(n)}})
	}
}

// effects reads the steps that must complete: `step`, or `step: {argument: value}` to compare what the table
// gives to it. An empty list says that none does.
func (r *reader) effects(n *yaml.Node) []effect {
	if n.Kind != yaml.SequenceNode {
		r.report(r.at(n), "wrong-kind", fmt.Sprintf("effects of a case is %s and must be a list", written(n)), "write `[step, ...]`, or `[]` for none")
		return nil
	}
	var list []effect
	for _, element := range r.cut(n.Content, "effects of a case", maxStates) {
		if element.Kind != yaml.MappingNode {
			if w, ok := r.word(element, "an effect of a case"); ok {
				list = append(list, effect{step: w})
			}
			continue
		}
		pairs, ok := r.mapping(element, "an effect of a case")
		if !ok || len(pairs) != 1 {
			if ok {
				r.report(r.at(element), "bad-case", fmt.Sprintf("an effect of a case has %d keys, and it is one step", len(pairs)), "write `step: {argument: value}`")
			}
			continue
		}
		with := map[string][]string{}
		given, _ := r.mapping(pairs[0].value, "arguments of "+pairs[0].key.Text)
		for _, p := range given {
			for _, value := range r.argument(p).Values {
				with[p.key.Text] = append(with[p.key.Text], value.Text)
			}
		}
		list = append(list, effect{pairs[0].key, with})
	}
	return list
}
