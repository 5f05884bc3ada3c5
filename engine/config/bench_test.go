// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// sized is a good file with that many consumers, of every rule in turn.
func sized(consumers int) []byte {
	var b strings.Builder
	b.WriteString("version: 1\ndatabase: {schema: bothy}\nconsumer: {batch_size: 100, poll_interval: 5s}\nconsumers:\n")
	for i := range consumers {
		fmt.Fprintf(&b, "  - name: consumer-%d\n    types: [order.*, user.registered.%d]\n    batch: 200\n    job: {kind: kind.%d, queue: queue%d, max_attempts: 12}\n", i, i, i, i%7)
		switch i % 4 {
		case 0:
			b.WriteString("    recipients:\n      query: |\n        SELECT b.seq, w.person AS recipient\n        FROM batch b\n        JOIN public.watchers w ON b.type = ANY (w.types)\n")
		case 1:
			b.WriteString("    recipients: {field: audience}\n")
		case 2:
			b.WriteString("    recipients: {list: [alex, sam, robin]}\n")
		default:
			b.WriteString("    recipients: none\n")
		}
	}
	return []byte(b.String())
}

// BenchmarkParse reports what a consumer costs in files of different sizes: about the same.
func BenchmarkParse(b *testing.B) {
	for _, consumers := range []int{1, 500, 1000, 2000} {
		text := sized(consumers)
		b.Run(fmt.Sprintf("consumers=%d", consumers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, problems := Parse("consumers.yaml", text, env); len(problems) > 0 {
					b.Fatal(problems)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(time.Nanosecond)/float64(b.N)/float64(consumers), "ns/consumer")
		})
	}
	// What the same file costs when its text only becomes nodes.
	text := sized(2000)
	b.Run("nodes=2000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var n yaml.Node
			if err := yaml.Unmarshal(text, &n); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed())/float64(time.Nanosecond)/float64(b.N)/2000, "ns/consumer")
	})
}
