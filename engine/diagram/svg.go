// SPDX-License-Identifier: Apache-2.0

package diagram

import (
	"fmt"
	"strings"

	"example.com/bothy/engine/machine"
)

// style colours a picture for a light and for a dark page. Every colour has words beside it: nothing is told by
// colour alone.
const style = `
    .page { fill: #ffffff; }
    text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; fill: #1b2026; }
    .title { font-size: 18px; font-weight: 600; }
    .name { font-size: 14px; font-weight: 600; }
    .box { stroke-width: 1.5; }
    .state { fill: #eef4ff; stroke: #2f5fb3; }
    .any { fill: #ffffff; stroke: #57606a; stroke-dasharray: 5 4; }
    .commit { fill: #d7f0dd; stroke: #1a7f37; }
    .rollback { fill: #e8ecf1; stroke: #57606a; }
    .failure { fill: #fde2e0; stroke: #b42318; }
    .line { fill: none; stroke: #57606a; stroke-width: 1.3; }
    .broken { stroke-dasharray: 5 4; }
    .tip, .dot { fill: #57606a; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; }
      text { fill: #e6edf3; }
      .state { fill: #14233f; stroke: #6ea0ff; }
      .any { fill: #0d1117; stroke: #9aa4af; }
      .commit { fill: #0f2f1a; stroke: #4ac26b; }
      .rollback { fill: #21262d; stroke: #9aa4af; }
      .failure { fill: #3d1512; stroke: #ff8a80; }
      .line { stroke: #9aa4af; }
      .tip, .dot { fill: #9aa4af; }
    }
`

// legends explain the boxes and the lines.
var legends = []struct{ class, text string }{
	{"state", "a state, its step and answers"},
	{"commit", "an end that commits"},
	{"rollback", "an end that rolls back"},
	{"failure", "an end that rolls back and is a failure"},
	{"any", "dashed: a step broke off"},
}

// svg draws a whole picture that needs nothing but itself.
func svg(m *machine.Machine) string {
	l := arrange(m.Table())
	x := margin
	for _, g := range legends {
		x += legendWide(g.text)
	}
	l.width = max(l.width, x)
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-labelledby=\"title description\">\n", l.width, l.height, l.width, l.height)
	fmt.Fprintf(&b, "  <title id=\"title\">%s</title>\n  <desc id=\"description\">%s</desc>\n", escape(title(m)), escape(summary(m)))
	fmt.Fprintf(&b, "  <style>%s  </style>\n", style)
	fmt.Fprintf(&b, "  <rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", l.width, l.height)
	write(&b, "title", "start", point{margin, margin + 16}, title(m))
	in := l.start.in()
	fmt.Fprintf(&b, "  <circle class=\"dot\" cx=\"%d\" cy=\"%d\" r=\"6\"/>\n", margin+6, in.y)
	line(&b, []point{{margin + 12, in.y}, in}, false)
	for _, a := range l.arrows {
		line(&b, a.points, a.broken)
	}
	for _, one := range l.boxes {
		draw(&b, one)
	}
	l.explain(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// draw writes one box with its text. The answers stand at the right, where their lines begin.
func draw(b *strings.Builder, one *box) {
	round := 4
	if one.class == "commit" || one.class == "rollback" || one.class == "failure" {
		round = 14
	}
	fmt.Fprintf(b, "  <rect class=\"box %s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/>\n", one.class, one.x, one.y, one.w, one.h, round)
	at := point{one.x + pad, one.y + entry + 4}
	write(b, "name", "start", at, one.name)
	for _, text := range one.lines {
		at.y += lineStep
		write(b, "", "start", at, text)
	}
	for n, text := range one.ports {
		p := one.port(n)
		write(b, "", "end", point{p.x - pad/2, p.y + 4}, text)
	}
}

// write writes one line of text whose baseline is at a point.
func write(b *strings.Builder, class, anchor string, at point, text string) {
	if class != "" {
		class = fmt.Sprintf(" class=%q", class)
	}
	if anchor == "end" {
		class += ` text-anchor="end"`
	}
	fmt.Fprintf(b, "  <text%s x=\"%d\" y=\"%d\">%s</text>\n", class, at.x, at.y, escape(text))
}

// line writes an arrow: its way, and a tip at its end.
func line(b *strings.Builder, points []point, broken bool) {
	var way []string
	for _, p := range points {
		way = append(way, fmt.Sprintf("%d,%d", p.x, p.y))
	}
	class := "line"
	if broken {
		class += " broken"
	}
	end := points[len(points)-1]
	fmt.Fprintf(b, "  <polyline class=%q points=%q/>\n", class, strings.Join(way, " "))
	fmt.Fprintf(b, "  <path class=\"tip\" d=\"M%d %dl-8 -4v8z\"/>\n", end.x, end.y)
}

// legendWide is how wide one explanation is, with the gap after it.
func legendWide(text string) int { return 26 + textWide*len(text) + 2*pad }

// explain writes the legend.
func (l *layout) explain(b *strings.Builder) {
	x, y := margin, l.height-legend/2-margin/2
	for _, g := range legends {
		fmt.Fprintf(b, "  <rect class=\"box %s\" x=\"%d\" y=\"%d\" width=\"18\" height=\"14\" rx=\"4\"/>\n", g.class, x, y)
		write(b, "", "start", point{x + 26, y + 12}, g.text)
		x += legendWide(g.text)
	}
}

// escape makes a text safe inside an element.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}
