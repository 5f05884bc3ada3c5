// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"testing"

	"go.uber.org/goleak"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/machine"
)

func TestMain(m *testing.M) {
	machine.UseRound(consumer.Vocabulary)
	machine.UseRestore(finalize.Vocabulary)
	goleak.VerifyTestMain(m)
}
