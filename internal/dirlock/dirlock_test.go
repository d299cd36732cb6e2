package dirlock_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/dirlock"
)

func TestOneAtATime(t *testing.T) {
	dir := t.TempDir()
	first, err := dirlock.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = dirlock.Lock(dir)
	var held *dirlock.HeldError
	if !errors.As(err, &held) || held.Dir != dir || held.PID != fmt.Sprint(os.Getpid()) {
		t.Errorf("the second Lock: %v, want that process %d has it", err, os.Getpid())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := dirlock.Lock(dir)
	if err != nil {
		t.Fatalf("Lock after Close: %v", err)
	}
	again.Close()
}
