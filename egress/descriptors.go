package egress

import (
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/toolkeep/toolkeep"
)

// OutOfDescriptors returns E3811 with NothingSent set if err came because this process or its machine may open no more
// files and connections, and nil for any other error. The upstream is not at fault. A second call for the same error may
// answer differently: the lack may have ended.
func OutOfDescriptors(err error) *toolkeep.Error {
	if !outOfDescriptors(err) {
		return nil
	}
	e := toolkeep.NewError(toolkeep.Backpressure, "this server has no file descriptors left, so it can open no more files and connections%s; nothing was sent, so try again in a moment", descriptorLimit()).
		After(time.Second).Because(err)
	e.NothingSent = true
	return e
}

// DescriptorsNote says for the operator which limit holds and how to raise it.
func DescriptorsNote() string {
	return "this server has no file descriptors left" + descriptorLimit() + "; raise it, as LimitNOFILE of systemd does"
}

func descriptorLimit() string {
	if n := maxDescriptors(); n > 0 {
		return " (its limit is " + strconv.FormatUint(n, 10) + ", ulimit -n)"
	}
	return ""
}

func outOfDescriptors(err error) bool {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return true
	}
	var dns *net.DNSError
	if !errors.As(err, &dns) {
		return false
	}
	// The resolver keeps only the text of what it met.
	f, err := os.Open(os.DevNull)
	if err != nil {
		return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
	}
	f.Close()
	return false
}
