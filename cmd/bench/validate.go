// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// validate measures the check of a configuration beside the mere reading of its YAML. The raw side needs the
// YAML library, which belongs to one room: so the benchmark of engine/config does both, and is run here.
func validate(ctx context.Context, b *bench) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkParse$", "-benchtime=5x", "-count="+strconv.Itoa(b.repeat), "./engine/config")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run the benchmark of engine/config, from the top of the repository: %w\n%s", err, out)
	}
	cost := map[string]float64{}
	for name, all := range perConsumer(out) {
		slices.Sort(all)
		cost[name] = all[len(all)/2]
	}
	large, small, raw := cost["consumers=2000"], cost["consumers=500"], cost["nodes=2000"]
	if large == 0 || small == 0 || raw == 0 {
		return fmt.Errorf("the benchmark of engine/config printed no costs per consumer:\n%s", out)
	}
	b.note("validate 2,000 consumers, milliseconds", large*2000/1e6)
	b.goal("validate 2,000 consumers, as a multiple of reading its YAML", large/raw, false, 5)
	b.goal("validate, growth of the cost per consumer from 500 to 2,000", large/small, false, 1.3)
	return nil
}

// perConsumer collects the metric ns/consumer of each benchmark by the last part of its name.
func perConsumer(out []byte) map[string][]float64 {
	found := map[string][]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		i := slices.Index(fields, "ns/consumer")
		if i < 1 {
			continue
		}
		_, name, _ := strings.Cut(fields[0], "/")
		if cut := strings.LastIndexByte(name, '-'); cut > 0 {
			name = name[:cut] // the number of processors
		}
		if value, err := strconv.ParseFloat(fields[i-1], 64); err == nil {
			found[name] = append(found[name], value)
		}
	}
	return found
}
