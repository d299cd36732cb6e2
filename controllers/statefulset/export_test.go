package statefulset

var NewReconciler = newReconciler
