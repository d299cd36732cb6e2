package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint"
)

// What the past takes is told by a load that is easy to compare with: so many writes a second, each of an
// object of 1 KB, which keeps the object, the one before it, and a little more.
const writesPerSecond, bytesPerWrite = 100, 256 + 2<<10

// historyCost says in a line what is kept of the past, and what that takes.
func historyCost(age time.Duration, bytesMax int64, now setpoint.Cost) string {
	rate := float64(writesPerSecond * bytesPerWrite)
	full := time.Duration(float64(bytesMax) / rate * float64(time.Second))
	text := fmt.Sprintf("history: %s, or %s of memory if that is less; %d writes a second of 1 KB ",
		timeText(age), bytesText(float64(bytesMax)), writesPerSecond)
	if full < age {
		text += fmt.Sprintf("fill that in %s, and would need %s for %s",
			timeText(full.Round(time.Second)), bytesText(rate*age.Seconds()), timeText(age))
	} else {
		text += "take " + bytesText(rate*age.Seconds()) + " of it"
	}
	text += "; now " + bytesText(float64(now.HistoryBytes))
	if now.DiskBytes > 0 {
		text += fmt.Sprintf(", and %s of the disk for all there is", bytesText(float64(now.DiskBytes)))
	}
	return text
}

// timeText leaves out what is zero at the end: 720h, not 720h0m0s.
func timeText(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ of, more string }{{"m0s", "0s"}, {"h0m", "0m"}} {
		if strings.HasSuffix(text, zero.of) {
			text = strings.TrimSuffix(text, zero.more)
		}
	}
	return text
}

func bytesText(bytes float64) string {
	for _, unit := range []string{"B", "KB", "MB"} {
		if bytes < 1<<10 {
			return fmt.Sprintf("%.0f %s", bytes, unit)
		}
		bytes /= 1 << 10
	}
	return fmt.Sprintf("%.1f GB", bytes)
}
