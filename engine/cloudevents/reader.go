// SPDX-License-Identifier: Apache-2.0

package cloudevents

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"unicode/utf8"

	"example.com/bothy/engine/problem"
)

// Reader reads events one after the other. Whether they stand one on each line or all in one array is
// decided by the first byte that is not blank. A Reader is not safe for use by several goroutines.
type Reader struct {
	file  string
	in    *bufio.Reader
	limit int // of the bytes of one event

	shape     shape
	err       error  // returned from now on: io.EOF, or what made reading on impossible
	buf       []byte // the text of the event in hand, reused
	line, col int    // of the next byte of in, from 1
	more      bool   // at least one event was read
	attrs     attributes
	unmapped  map[string]int
	strings   map[string]string // the texts that come again and again: types, sources, names of attributes
}

type shape int

const (
	unknown shape = iota // nothing was read yet
	lines
	array
)

// NewReader reads events from r. The file is only the name that positions carry.
func NewReader(file string, r io.Reader) *Reader {
	n := &Reader{
		file: file, in: bufio.NewReaderSize(r, 64<<10), limit: MaxEventBytes, line: 1, col: 1,
		unmapped: map[string]int{}, strings: map[string]string{},
	}
	n.attrs.seen, n.attrs.known = map[string]int{}, n.known
	return n
}

// Next returns the next event, and io.EOF after the last one.
//
// An event that cannot be read gives a problem.List of one problem. Where the rest of the input is still
// clear (the next line, the next element of the array), the next call goes on behind that event, so that
// a caller may collect every problem; where it is not, every further call returns io.EOF. A failure to
// read is returned as it came, wrapped, by this call and every further one.
func (r *Reader) Next() (Event, error) {
	if r.err != nil {
		return Event{}, r.err
	}
	if r.shape == unknown {
		if err := r.open(); err != nil {
			return Event{}, err
		}
	}
	if r.shape == array {
		return r.nextElement()
	}
	return r.nextLine()
}

// Unmapped counts the attributes that were read and have no place in an Event, by name.
func (r *Reader) Unmapped() map[string]int { return maps.Clone(r.unmapped) }

// open finds out how the events are written.
func (r *Reader) open() error {
	head, err := r.in.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return r.broken(err)
	}
	switch {
	case bytes.Equal(head, []byte("\xEF\xBB\xBF")):
		_, _ = r.in.Discard(3) // cannot fail: Peek holds the three bytes
	case bytes.HasPrefix(head, []byte("\x1F\x8B")):
		return r.refuse("bad-json", "the file is compressed", "unpack it first: gzip -dc FILE")
	case bytes.HasPrefix(head, []byte("\xFF\xFE")), bytes.HasPrefix(head, []byte("\xFE\xFF")):
		return r.refuse("bad-utf8", "the file is written in UTF-16", "write it in UTF-8")
	}
	c, err := r.blanks()
	if err != nil {
		return r.broken(err)
	}
	switch c {
	case '[':
		r.shape = array
		r.take()
	case '{':
		r.shape = lines
	default:
		rest, _ := r.in.Peek(64) // fewer at the end of the input
		return r.refuse("bad-json", found(rest)+" begins the file, where an event or an array of events has to stand", "write one event as JSON on each line, or all of them in one JSON array")
	}
	return nil
}

// nextLine reads the next line that is not blank.
func (r *Reader) nextLine() (Event, error) {
	for {
		line, col := r.line, r.col
		if err := r.readLine(); err != nil {
			return Event{}, err
		}
		if len(bytes.TrimLeft(r.buf, " \t\r\n")) > 0 {
			return r.event(line, col)
		}
	}
}

// readLine reads up to and with the next line feed, or what is left.
func (r *Reader) readLine() error {
	r.buf = r.buf[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		r.buf = append(r.buf, part...)
		switch {
		case len(r.buf) > r.limit:
			return r.tooLarge(r.line, r.col)
		case err == nil, errors.Is(err, io.EOF) && len(r.buf) > 0:
			r.line, r.col = r.line+1, 1
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return r.broken(err)
		}
	}
}

// nextElement reads the next element of the array, or finds its end.
func (r *Reader) nextElement() (Event, error) {
	c, err := r.blanks()
	if err == nil && c == ']' {
		return Event{}, r.close()
	}
	if err == nil && r.more {
		if c != ',' {
			return Event{}, r.unexpected(`"," or "]" after the event`)
		}
		r.take()
		c, err = r.blanks()
	}
	switch {
	case errors.Is(err, io.EOF):
		return Event{}, r.refuse("bad-json", `the file ends before the closing "]" of the array`, "write the whole array")
	case err != nil:
		return Event{}, r.broken(err)
	case c != '{':
		return Event{}, r.unexpected("the opening brace of an event")
	}
	line, col := r.line, r.col
	whole, err := r.readObject()
	if err != nil {
		return Event{}, err
	}
	r.more = true
	event, err := r.event(line, col)
	if err != nil && !whole {
		r.err = io.EOF
	}
	return event, err
}

// readObject reads up to the brace that closes the one the input stands at. It looks at no more than
// braces and strings, and reports false where it gives up: at a line feed in a string and at the end of
// the input. What is wrong there is found when the text is parsed.
func (r *Reader) readObject() (whole bool, err error) {
	r.buf = r.buf[:0]
	line, col := r.line, r.col
	depth, quoted := 0, false
	for {
		c, err := r.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, r.broken(err)
		}
		if len(r.buf) == r.limit {
			return false, r.tooLarge(line, col)
		}
		r.buf = append(r.buf, c)
		r.move(c)
		switch {
		case quoted && c == '\\':
			next, err := r.in.ReadByte()
			if err != nil {
				continue // the same error comes again
			}
			r.buf = append(r.buf, next)
			r.move(next)
		case c == '"':
			quoted = !quoted
		case quoted && c == '\n':
			return false, nil
		case !quoted && c == '{':
			depth++
		case !quoted && c == '}':
			if depth--; depth == 0 {
				return true, nil
			}
		}
	}
}

// close refuses what stands behind the array.
func (r *Reader) close() error {
	r.take()
	if _, err := r.blanks(); err == nil {
		rest, _ := r.in.Peek(64)
		return r.refuse("bad-json", found(rest)+" follows the array", "write all events in one array, or each on a line without an array around them")
	} else if !errors.Is(err, io.EOF) {
		return r.broken(err)
	}
	r.err = io.EOF
	return io.EOF
}

// event parses the text in hand, which begins at the given place.
func (r *Reader) event(line, col int) (Event, error) {
	a := &r.attrs
	clear(a.seen)
	*a = attributes{scanner: scanner{text: r.buf}, seen: a.seen, known: a.known, extra: a.extra[:0]}
	if f := a.read(); f != nil {
		p := problem.Problem{At: r.place(line, col, f.at), Severity: problem.Error, Code: f.code, What: f.what, Fix: f.fix}
		if f.also > 0 {
			p.Also = r.place(line, col, f.also)
		}
		if f.cut && !r.more {
			r.err = io.EOF // indented JSON: every further line would be one more problem
		}
		return Event{}, problem.List{p}
	}
	for _, name := range a.extra {
		r.unmapped[name]++
	}
	at := r.place(line, col, a.begin)
	a.event.Line, a.event.Col, r.more = at.Line, at.Col, true
	return a.event, nil
}

// place turns an offset of the text in hand into a position of the file.
func (r *Reader) place(line, col, offset int) problem.Position {
	before := r.buf[:min(offset, len(r.buf))]
	if at := bytes.LastIndexByte(before, '\n'); at >= 0 {
		line, col = line+bytes.Count(before, []byte("\n")), 1
		before = before[at+1:]
	}
	return problem.Position{File: r.file, Line: line, Col: col + utf8.RuneCount(before)}
}

// blanks moves to the next byte that is not blank and returns it without taking it.
func (r *Reader) blanks() (byte, error) {
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if !isBlank(c) {
			return c, r.in.UnreadByte()
		}
		r.move(c)
	}
}

// take moves over the byte that blanks returned.
func (r *Reader) take() {
	if c, err := r.in.ReadByte(); err == nil {
		r.move(c)
	}
}

// move counts one byte into the position; the bytes inside a character do not count.
func (r *Reader) move(c byte) {
	switch {
	case c == '\n':
		r.line, r.col = r.line+1, 1
	case utf8.RuneStart(c):
		r.col++
	}
}

// known returns raw as a string, and the same string each time for short texts that come again.
func (r *Reader) known(raw []byte) string {
	const longest, most = 64, 1024
	if len(raw) > longest {
		return unquote(raw)
	}
	if s, ok := r.strings[string(raw)]; ok {
		return s
	}
	s := unquote(raw)
	if len(r.strings) < most {
		r.strings[string(raw)] = s
	}
	return s
}

// broken ends the reading with an error of the input, or with io.EOF at its end.
func (r *Reader) broken(err error) error {
	r.err = io.EOF
	if !errors.Is(err, io.EOF) {
		r.err = fmt.Errorf("read %s: %w", r.file, err)
	}
	return r.err
}

// refuse ends the reading with a problem at the place that the input has reached.
func (r *Reader) refuse(code, what, fix string) error {
	r.err = io.EOF
	at := problem.Position{File: r.file, Line: r.line, Col: r.col}
	return problem.List{{At: at, Severity: problem.Error, Code: code, What: what, Fix: fix}}
}

func (r *Reader) unexpected(want string) error {
	rest, _ := r.in.Peek(64) // fewer at the end of the input
	return r.refuse("bad-json", found(rest)+" stands in place of "+want, "write the events as one JSON array")
}

func (r *Reader) tooLarge(line, col int) error {
	r.line, r.col = line, col
	return r.refuse("too-large", fmt.Sprintf("the event is larger than %d bytes", r.limit), "store what is large elsewhere, and send where it is")
}
