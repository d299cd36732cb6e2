package operator_test

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bookv1 "github.com/setpoint-dev/setpoint/conformance/operator/api/v1"
)

const (
	finalizer = "book.example.com/farewell"
	byOwner   = "owner" // the index of config maps by the guestbook that wants them
)

// reconciler keeps a config map for each guest, and leaves one behind that says goodbye.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var book bookv1.Guestbook
	if err := r.Get(ctx, req.NamespacedName, &book); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !book.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.sayGoodbye(ctx, &book)
	}
	if controllerutil.AddFinalizer(&book, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &book)
	}
	if err := r.keepPages(ctx, &book); err != nil {
		return ctrl.Result{}, err
	}
	before := book.DeepCopyObject().(*bookv1.Guestbook)
	book.Status.Pages = int32(len(book.Spec.Guests))
	book.Status.ObservedGeneration = book.Generation
	meta.SetStatusCondition(&book.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Written", Message: "every guest has a page",
	})
	return ctrl.Result{}, r.Status().Patch(ctx, &book, client.MergeFrom(before))
}

func (r *reconciler) keepPages(ctx context.Context, book *bookv1.Guestbook) error {
	var pages corev1.ConfigMapList
	if err := r.List(ctx, &pages, client.InNamespace(book.Namespace), client.MatchingFields{byOwner: book.Name}); err != nil {
		return err
	}
	for i := range pages.Items {
		if !slices.Contains(book.Spec.Guests, pages.Items[i].Data["guest"]) {
			if err := r.Delete(ctx, &pages.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	for _, guest := range book.Spec.Guests {
		page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, Name: book.Name + "-" + guest}}
		_, err := controllerutil.CreateOrUpdate(ctx, r.Client, page, func() error {
			page.Data = map[string]string{"guest": guest}
			return controllerutil.SetControllerReference(book, page, r.Scheme())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) sayGoodbye(ctx context.Context, book *bookv1.Guestbook) error {
	goodbye := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, Name: book.Name + "-goodbye"}}
	if err := r.Create(ctx, goodbye); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	controllerutil.RemoveFinalizer(book, finalizer)
	return client.IgnoreNotFound(r.Update(ctx, book))
}

func ownerOf(obj client.Object) []string {
	if owner := metav1.GetControllerOf(obj); owner != nil && owner.Kind == "Guestbook" {
		return []string{owner.Name}
	}
	return nil
}

func (r *reconciler) setUp(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, byOwner, ownerOf)
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&bookv1.Guestbook{}).Owns(&corev1.ConfigMap{}).Complete(r)
}
