package dirlock_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestWaiting waits for a holder that lets go in time, and no longer than it was told for another.
func TestWaiting(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first, err := dirlock.Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = dirlock.LockWithin(dir, 3*time.Second)
		want := fmt.Sprintf("in use by process %d, which did not let go of it within 3s", os.Getpid())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("LockWithin: %v, want %q", err, want)
		}
		go func() {
			<-time.After(time.Second)
			first.Close()
		}()
		again, err := dirlock.LockWithin(dir, 3*time.Second)
		if err != nil {
			t.Fatalf("LockWithin, with the directory free after a second: %v", err)
		}
		again.Close()
	})
}
